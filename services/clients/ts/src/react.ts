/** A hook for React, and for Preact by `preact/compat`. */
import { createContext, createElement, type ReactNode, useContext, useMemo, useSyncExternalStore } from "react";
import type { Client } from "./client.js";
import { TurnwrightError } from "./errors.js";
import { RunFold } from "./fold.js";

/** How a run is now. `fold` stays the same and changes with its events; the object around it is a new one each time. */
export interface LiveRun {
  fold: RunFold;
  /** Whether the fold is whole. */
  isLoaded: boolean;
  /** Why the watch has ended, if it failed. */
  error: TurnwrightError | undefined;
}

const Context = createContext<Client | undefined>(undefined);

export function ClientProvider({ client, children }: { client: Client; children?: ReactNode }) {
  return createElement(Context.Provider, { value: client }, children);
}

/** A run while it is shown, as it changes: the component is rendered again at most once for all events that come together. */
export function useRun({ project, run }: { project: string; run: string }): LiveRun {
  const client = useContext(Context);
  if (!client) throw new Error("useRun needs a ClientProvider above it.");
  const { subscribe, current } = useMemo(() => liveRun(client, project, run), [client, project, run]);
  return useSyncExternalStore(subscribe, current, current);
}

function liveRun(client: Client, project: string, run: string) {
  let live: LiveRun = { fold: new RunFold(), isLoaded: false, error: undefined };
  const subscribe = (tell: () => void): (() => void) => {
    const ending = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const changed = (change: Partial<LiveRun> = {}) => {
      live = { ...live, ...change };
      timer ??= setTimeout(() => {
        timer = undefined;
        tell();
      });
    };
    const follow = async () => {
      const options = { signal: ending.signal, retriesMax: Infinity, keepOpen: true, onlyWhileShown: true };
      for await (const message of client.watchRun({ project, run, after: live.fold.cursor }, options)) {
        live.fold.apply(message);
        if (message.event.case !== "heartbeat") changed({ isLoaded: live.fold.run !== undefined });
      }
    };
    follow().catch((error: unknown) => changed({ error: TurnwrightError.of(error) }));
    return () => {
      ending.abort();
      clearTimeout(timer);
    };
  };
  return { subscribe, current: () => live };
}

/** How the page reaches an executor: gRPC-Web at its own origin, which a door and an edge both speak, with a token. */
import { Code, type Transport } from "@connectrpc/connect";
import { Client, connect, TurnwrightError } from "@turnwright/client";
import type { SessionCommand } from "@turnwright/client/protos/turnwright/types/v1/session_command_pb.js";

const KEPT = "turnwright.token";

/**
 * The token of this tab, and one that a person has to be asked about first: any site can open an address with a token of its own.
 * One in the address is taken out of it at once, before anything else can read or keep it.
 */
export function ownToken(): { kept: string; offered: string } {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  const kept = sessionStorage.getItem(KEPT) ?? "";
  if (given === null) return { kept, offered: "" };
  history.replaceState(null, "", `${location.pathname}#/`);
  if ((kept && given && kept !== given) || isOfAnotherSite(document.referrer)) return { kept, offered: given };
  keepToken(given);
  return { kept: given, offered: "" };
}

const isOfAnotherSite = (referrer: string) => referrer !== "" && new URL(referrer).origin !== location.origin;

export function keepToken(token: string): void {
  if (token) sessionStorage.setItem(KEPT, token);
  else sessionStorage.removeItem(KEPT);
}

export const isUnknownToken = (error: unknown): boolean => TurnwrightError.of(error).code === Code.Unauthenticated;
/** What a person reads of an error. */
export const words = (error: unknown): string => TurnwrightError.of(error).text;

/** A watch of the page goes on for as long as the page does, while somebody sees it: a browser has six connections to a host. */
export const WHILE_SHOWN = { keepOpen: true, onlyWhileShown: true, retriesMax: Infinity };

export class Door extends Client {
  /** `isLive` is false where answers are of a file: nothing changes then, and nothing can be changed. */
  constructor(transport: Transport, readonly isLive: boolean) {
    super(transport);
  }

  static of(token: string): Door {
    // The page itself came from there, protected or not.
    return new Door(connect(location.origin, token, { insecure: true }).transport, true);
  }

  submit(project: string, run: string, kind: SessionCommand["kind"]) {
    return this.sessions.submitCommand({ project, run, command: { kind } });
  }
}

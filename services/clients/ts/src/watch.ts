/** Watches that go on after every lost connection where they were. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import type { ExecutorService, WatchRunRequestSchema, WatchRunResponse } from "#protos/turnwright/executor/v1/executor_service_pb.js";
import type { RunService } from "#protos/turnwright/runs/v1/run_service_pb.js";
import type { WatchRunsResponse } from "#protos/turnwright/runs/v1/watch_runs_pb.js";
import type { EventCursor } from "#protos/turnwright/types/v1/cursor_pb.js";
import type { Run } from "#protos/turnwright/types/v1/run_pb.js";
import { TurnwrightError } from "./errors.js";
import { backoffMs, pause, shown } from "./pauses.js";

/** A stream without so much as a heartbeat for so long is of a connection that is dead. */
const SILENCE_MS = 60_000;
const RETRIES_MAX = 8;

export interface WatchOptions {
  /** Ends the watch, without an error. */
  signal?: AbortSignal;
  /** So many connections in a row may bring nothing before the watch fails with the last one's error. Default: 8. */
  retriesMax?: number;
  /** Closes the stream while nobody sees the page, and opens it again: a browser has six to a host without HTTP/2. Default: false. */
  onlyWhileShown?: boolean;
}

export interface WatchRunOptions extends WatchOptions {
  /** The watch goes on when the run has come to its end, because somebody may give it another task. Default: false. */
  keepOpen?: boolean;
}

export type WatchRunRequest = Omit<MessageInitShape<typeof WatchRunRequestSchema>, "$typeName" | "batched" | "after"> & {
  project: string;
  run: string;
  /** Where an earlier watch was. Absent, or too old: the watch begins with a snapshot. */
  after?: EventCursor | undefined;
};

/** Messages of one stream after the other. A stream that ends by itself or breaks is opened again; an error that would come again is thrown. */
async function* resumed<M>(open: (signal: AbortSignal) => AsyncIterable<M>, options: WatchOptions): AsyncGenerator<M> {
  const { signal = new AbortController().signal, retriesMax = RETRIES_MAX, onlyWhileShown = false } = options;
  for (let failures = 0, unanswered = 0; !signal.aborted; ) {
    if (onlyWhileShown) await shown(signal);
    const connection = new AbortController();
    const close = () => connection.abort();
    const hidden = () => document.hidden && close();
    signal.addEventListener("abort", close);
    if (onlyWhileShown && typeof document !== "undefined") document.addEventListener("visibilitychange", hidden);
    let timer = setTimeout(close, SILENCE_MS);
    try {
      for await (const message of open(connection.signal)) {
        clearTimeout(timer);
        failures = unanswered = 0;
        yield message;
        timer = setTimeout(close, SILENCE_MS);
      }
      unanswered = 0;
    } catch (thrown) {
      const error = TurnwrightError.of(thrown);
      if (signal.aborted) return;
      if ((!error.isPassing && error.reason !== "LEASE_LOST") || ++unanswered > retriesMax) throw error;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", close);
      if (onlyWhileShown && typeof document !== "undefined") document.removeEventListener("visibilitychange", hidden);
      close();
    }
    await pause(backoffMs(++failures), signal);
  }
}

/** The events of a run, each once and in order, to the end of the run: until all tasks that it was given have ended. */
export async function* watchRun(
  executor: Client<typeof ExecutorService>, runs: Client<typeof RunService>, request: WatchRunRequest, options: WatchRunOptions = {},
): AsyncGenerator<WatchRunResponse> {
  let after = request.after;
  async function* open(signal: AbortSignal) {
    try {
      const { after: _, ...what } = request;
      for await (const message of executor.watchRun({ ...what, batched: true, ...(after ? { after } : {}) }, { signal })) {
        for (const event of message.event.case === "batch" ? message.event.value.events : [message]) {
          if (isBehindAGap(event, after)) {
            after = undefined; // Only a snapshot can make up for what is missing.
            return;
          }
          const { case: kind, value } = event.event;
          // A snapshot counts when its last part is there.
          if (kind !== "heartbeat" && (kind !== "snapshot" || value.last)) after = event.cursor;
          yield event;
        }
      }
    } catch (error) {
      if (TurnwrightError.of(error).reason !== "CURSOR_FOREIGN" || !after) throw error;
      after = undefined;
    }
  }
  const { project, run } = request;
  // The end may have come before the cursor, and then no event tells of it.
  let isKnown = false, wasOver = false;
  for await (const message of resumed(open, options)) {
    yield message;
    if (options.keepOpen) continue;
    const { event } = message;
    const at = event.case === "runState" || (event.case === "snapshot" && event.value.last) ? event.value.run : undefined;
    if (at && isOver(at)) return;
    isKnown ||= at !== undefined;
    if (event.case !== "heartbeat") wasOver = false;
    else if (!isKnown) {
      if (wasOver) return; // Whatever led to it would have come before this second heartbeat.
      const found = (await runs.getRun({ project, run, runOnly: true })).run;
      wasOver = found !== undefined && isOver(found);
    }
  }
}

const PROPOSED = 202;
const ENDED = 200;
const isOver = ({ status, loopsQueued }: Run) => status >= ENDED && status !== PROPOSED && loopsQueued === 0;

/** These repeat a number. */
const UNNUMBERED = new Set<string | undefined>(["snapshot", "heartbeat", "planUpdated", "planRemoved", "legacyPlan"]);

function isBehindAGap({ cursor, event }: WatchRunResponse, before: EventCursor | undefined): boolean {
  if (UNNUMBERED.has(event.case)) return false;
  return !before || cursor?.epoch !== before.epoch || cursor.seq !== before.seq + 1n;
}

/** How the runs of a project change, first all of them unless `after` is a cursor: until the signal aborts. */
export async function* watchRuns(
  runs: Client<typeof RunService>, request: { project: string; after?: string | undefined }, options: WatchOptions = {},
): AsyncGenerator<WatchRunsResponse> {
  let after = request.after ?? "";
  for await (const message of resumed((signal) => runs.watchRuns({ project: request.project, after }, { signal }), options)) {
    if (message.cursor) after = message.cursor;
    yield message;
  }
}

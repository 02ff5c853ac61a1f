/** A run that is being looked at: its events, folded, and its turns with their figures. */
import { timestampMs } from "@bufbuild/protobuf/wkt";
import type { Duration } from "@bufbuild/protobuf/wkt";
import { RunFold } from "@turnwright/client";
import { PlanEvents, type WatchRunResponse } from "@turnwright/client/protos/turnwright/executor/v1/executor_service_pb.js";
import { RunProgress_Phase } from "@turnwright/client/protos/turnwright/executor/v1/event_pb.js";
import { SessionState } from "@turnwright/client/protos/turnwright/types/v1/session_pb.js";
import type { Turn } from "@turnwright/client/protos/turnwright/types/v1/turn_pb.js";
import { announce } from "./announcer.js";
import { type Door, WHILE_SHOWN, words } from "./door.js";
import { Store } from "./store.js";
import { stateWord } from "./words.js";

/** Milliseconds of a turn by what they were spent on. */
export interface Spans {
  wait: number;
  stream: number;
  commands: number;
  people: number;
}

/** What was seen of a turn while it was open, as times of the executor in milliseconds. */
interface Seen {
  begin: number;
  firstDelta?: number;
  streamed?: number;
  pausedAt?: number | undefined;
  people: number;
}

export interface Totals {
  turns: number;
  prompt: number;
  cached: number;
  completion: number;
  cost: number;
  isCostKnown: boolean;
}

const TURNS_A_PAGE = 200;
const ms = (duration: Duration | undefined) => (duration ? Number(duration.seconds) * 1000 + duration.nanos / 1e6 : 0);

export class RunModel extends Store {
  readonly fold = new RunFold();
  readonly turns = new Map<number, Turn>();
  /** What is wrong, for people; empty: nothing. */
  problem = "";
  /** What the open turn is doing besides, such as a retry. */
  progress = "";
  isLoaded = false;
  private readonly seen = new Map<number, Seen>();
  private readonly ending = new AbortController();

  constructor(readonly door: Door, readonly project: string, readonly run: string) {
    super();
    void this.follow();
  }

  close(): void {
    this.ending.abort();
  }

  get address() {
    return { project: this.project, run: this.run };
  }

  /** All turns that are known, by number. */
  numbers(): number[] {
    const all = new Set(this.turns.keys());
    for (const turn of this.fold.turns()) if (turn) all.add(turn);
    return [...all].sort((a, b) => a - b);
  }

  spans(number: number): Spans | undefined {
    const turn = this.turns.get(number);
    const result = turn?.result;
    if (turn?.beginTime && turn.endTime && result) {
      const model = ms(result.modelDuration), work = ms(result.workDuration);
      const wait = Math.min(model, ms(result.firstDeltaDuration));
      const whole = timestampMs(turn.endTime) - timestampMs(turn.beginTime);
      return { wait, stream: model - wait, commands: Math.max(0, work - model), people: Math.max(0, whole - Math.max(work, model)) };
    }
    const seen = this.seen.get(number);
    if (!seen) return undefined;
    const now = Math.max(Date.now(), seen.begin);
    const wait = (seen.firstDelta ?? seen.streamed ?? now) - seen.begin;
    const stream = seen.firstDelta ? (seen.streamed ?? now) - seen.firstDelta : 0;
    const people = seen.people + (seen.pausedAt ? now - seen.pausedAt : 0);
    const commands = seen.streamed ? Math.max(0, now - seen.streamed - people) : 0;
    return { wait: Math.max(0, wait), stream: Math.max(0, stream), commands, people: Math.max(0, people) };
  }

  totals(): Totals {
    const sum: Totals = { turns: 0, prompt: 0, cached: 0, completion: 0, cost: 0, isCostKnown: true };
    for (const { result } of this.turns.values()) {
      if (!result?.usage) continue;
      sum.turns++;
      sum.prompt += Number(result.usage.promptTokens);
      sum.cached += Number(result.usage.cachedTokens);
      sum.completion += Number(result.usage.completionTokens);
      sum.cost += result.usage.costUsd ?? 0;
      sum.isCostKnown &&= result.usage.costUsd !== undefined;
    }
    return sum;
  }

  private async follow(): Promise<void> {
    const { signal } = this.ending;
    const request = { ...this.address, plans: PlanEvents.OPERATIONS };
    const { isLive, executor } = this.door;
    try {
      const events = isLive ? this.door.watchRun(request, { ...WHILE_SHOWN, signal }) : executor.watchRun(request, { signal });
      for await (const message of events) this.take(message);
    } catch (error) {
      if (!signal.aborted) this.fail(error);
    }
  }

  private fail(error: unknown): void {
    this.problem = words(error);
    this.changed();
  }

  private take(message: WatchRunResponse): void {
    const { event } = message;
    if (event.case === "heartbeat") return;
    this.fold.apply(message);
    if (event.case === "snapshot") {
      if (!event.value.last) return;
      this.turns.clear();
      this.isLoaded = true;
      void this.readTurns().catch((error: unknown) => this.fail(error));
    }
    this.note(message);
    this.changed();
  }

  /** The turns that ended before the watch began, latest first. */
  private async readTurns(): Promise<void> {
    let pageToken = "";
    do {
      const page = await this.door.turns.listTurns({ ...this.address, pageSize: TURNS_A_PAGE, pageToken });
      for (const turn of page.turns) {
        if (!this.turns.get(turn.number)?.result) this.turns.set(turn.number, turn);
        if (!turn.result && turn.beginTime && !this.seen.has(turn.number)) this.seen.set(turn.number, this.seenLate(turn.number, timestampMs(turn.beginTime)));
      }
      pageToken = page.nextPageToken;
      this.changed();
    } while (pageToken && !this.ending.signal.aborted);
  }

  /** What is known of an open turn that began before the watch: when its reply was stored, and that somebody is waited for since. */
  private seenLate(number: number, begin: number): Seen {
    const stored = this.fold.entries.get(`assistant://${number}`)?.updateTime;
    if (!stored) return { begin, people: 0 };
    const at = timestampMs(stored);
    return { begin, firstDelta: at, streamed: at, people: 0, pausedAt: this.fold.proposals.size ? at : undefined };
  }

  private note({ event, time }: WatchRunResponse): void {
    const at = time ? timestampMs(time) : Date.now();
    const current = this.seen.get(Math.max(0, ...this.seen.keys()));
    if (event.case !== "runProgress") this.progress = "";
    switch (event.case) {
      case "turnStarted": {
        const turn = event.value.turn!;
        this.turns.set(turn.number, turn);
        this.seen.set(turn.number, { begin: turn.beginTime ? timestampMs(turn.beginTime) : at, people: 0 });
        announce(`Turn ${turn.number} has begun.`);
        break;
      }
      case "streamDelta": {
        const seen = this.seen.get(event.value.turn);
        if (seen) seen.firstDelta ??= at;
        break;
      }
      case "streamFinished": {
        const seen = this.seen.get(event.value.turn);
        if (seen) seen.streamed = at;
        break;
      }
      case "proposalPending":
        if (current) current.pausedAt ??= at;
        announce(`A proposal waits for a decision: ${event.value.proposal!.tool} ${event.value.proposal!.target}`);
        break;
      case "proposalResolved":
        if (current?.pausedAt && this.fold.proposals.size === 0) {
          current.people += at - current.pausedAt;
          current.pausedAt = undefined;
        }
        break;
      case "turnFinished":
        this.turns.set(event.value.turn!.number, event.value.turn!);
        this.seen.delete(event.value.turn!.number);
        break;
      case "runProgress":
        this.progress = `${RunProgress_Phase[event.value.phase]?.toLowerCase() ?? ""} ${event.value.detail}`.trim();
        break;
      case "runtimeUpdated":
        if (event.value.state >= SessionState.PAUSED || event.value.state === SessionState.IDLE) announce(`The run is ${stateWord(event.value.state)}.`);
        break;
    }
  }
}

/** The state of a run folded from its events, as every client folds them (docs/clients.md). */
import type { EventCursor } from "#protos/turnwright/types/v1/cursor_pb.js";
import type { OutputAppended, Snapshot } from "#protos/turnwright/executor/v1/event_pb.js";
import type { WatchRunResponse } from "#protos/turnwright/executor/v1/executor_service_pb.js";
import type { Delta } from "#protos/turnwright/types/v1/delta_pb.js";
import type { Entry } from "#protos/turnwright/types/v1/entry_pb.js";
import type { Plan } from "#protos/turnwright/types/v1/plan_pb.js";
import type { Proposal } from "#protos/turnwright/types/v1/proposal_pb.js";
import type { Run } from "#protos/turnwright/types/v1/run_pb.js";
import { SessionState } from "#protos/turnwright/types/v1/session_pb.js";
import type { QueuedCommand } from "#protos/turnwright/types/v1/session_command_pb.js";

/** The reply that is being streamed. */
export interface Partial {
  turn: number;
  content: string;
  reasoning: string;
  calls: { name: string; arguments: string }[];
}

/** Bodies other than messages are cut here, as in events. */
const OUTPUT_CHARS_MAX = 262_144;
const WHOLE = new Set(["prompt", "assistant", "reasoning"]);

const TURN_OF_PATH = /^(?:\w+:\/\/turn_(\d+)(?:\/|$)|(?:assistant|reasoning):\/\/(\d+)$)/;
export function turnOf(entry: Entry): number {
  const found = TURN_OF_PATH.exec(entry.path);
  return found ? Number(found[1] ?? found[2]) : entry.turn;
}

const byPosition = (a: Entry, b: Entry) => (a.position < b.position ? -1 : a.position > b.position ? 1 : 0);

/** Give `apply` each event of a watch, in order. */
export class RunFold {
  /** Where this is, to resume a watch: behind the last event, or the last part of a snapshot. */
  cursor: EventCursor | undefined;
  state = SessionState.UNSPECIFIED;
  readonly entries = new Map<string, Entry>();
  proposals = new Map<string, Proposal>();
  plans = new Map<string, Plan>();
  queue: QueuedCommand[] = [];
  partial: Partial | undefined;
  private parts: Snapshot[] = [];
  private readonly ofTurn = new Map<number, Map<string, Entry>>();
  private readonly sorted = new Map<number, Entry[]>();

  /** Number of the latest turn that was told of. */
  latestTurn: number;

  /** `run` is what is known of it already. */
  constructor(public run?: Run) {
    this.latestTurn = run?.turn ?? 0;
  }

  /** The prose of a turn's reply, as far as it has come. */
  proseOf(turn: number): string {
    return this.partial?.turn === turn ? this.partial.content : (this.entries.get(`assistant://${turn}`)?.body ?? "");
  }

  /** The entries of a turn in the order of the timeline. */
  of(turn: number): Entry[] {
    let found = this.sorted.get(turn);
    if (!found) {
      found = [...(this.ofTurn.get(turn)?.values() ?? [])].sort(byPosition);
      this.sorted.set(turn, found);
    }
    return found;
  }

  /** Numbers of turns that have entries. */
  turns(): IterableIterator<number> {
    return this.ofTurn.keys();
  }

  apply({ cursor, event }: WatchRunResponse): void {
    if (event.case !== "heartbeat" && (event.case !== "snapshot" || event.value.last)) this.cursor = cursor;
    switch (event.case) {
      case "snapshot":
        return this.addPart(event.value);
      case "turnStarted":
        this.latestTurn = event.value.turn!.number;
        return;
      case "streamStarted":
        this.partial = { turn: event.value.turn, content: "", reasoning: "", calls: [] };
        return;
      case "streamDelta":
        if (this.partial?.turn === event.value.turn) for (const delta of event.value.deltas) grow(this.partial, delta);
        return;
      case "streamCancelled":
        this.partial = undefined;
        return;
      case "messageAdded":
      case "messageUpdated":
        return this.keep(event.value.entry!);
      case "outputAppended":
        return this.append(event.value);
      case "messageRemoved":
        return this.forget(event.value.path);
      case "messagesTruncated":
        for (const path of event.value.paths) this.forget(path);
        return;
      case "proposalPending":
        this.proposals.set(event.value.proposal!.path, event.value.proposal!);
        return;
      case "proposalResolved":
        this.proposals.delete(event.value.decision!.path);
        return;
      case "runState":
        this.run = event.value.run;
        return;
      case "threadUpdated":
        if (this.run) this.run.settings = event.value.settings;
        return;
      case "runtimeUpdated":
        this.state = event.value.state;
        return;
      case "queueUpdated":
        this.queue = event.value.commands;
        return;
      case "planUpdated":
        this.plans.set(event.value.planId, event.value);
        return;
      case "planRemoved":
        this.plans.delete(event.value);
        return;
    }
  }

  private addPart(part: Snapshot): void {
    if (part.part === 0) this.parts = [];
    this.parts.push(part);
    if (!part.last) return;
    const parts = this.parts;
    this.parts = [];
    this.entries.clear();
    this.ofTurn.clear();
    this.sorted.clear();
    this.partial = undefined;
    for (const each of parts) {
      for (const entry of each.entries) this.keep(entry);
      for (const piece of each.bodies) this.append(piece);
    }
    this.run = part.run;
    this.latestTurn = part.run?.turn ?? 0;
    this.state = part.state;
    this.queue = part.queue;
    this.proposals = new Map(part.proposals.map((each) => [each.path, each]));
    this.plans = new Map(parts.flatMap((each) => each.plans).map((each) => [each.planId, each]));
    if (part.partial) {
      const pieces = parts.flatMap((each) => each.partial ?? []);
      this.partial = {
        turn: part.partial.turn,
        content: pieces.map((piece) => piece.content).join(""),
        reasoning: pieces.map((piece) => piece.reasoning).join(""),
        calls: (part.partial.message?.calls ?? []).map(({ name, arguments: text }) => ({ name, arguments: text })),
      };
    }
  }

  private keep(entry: Entry): void {
    const before = this.entries.get(entry.path);
    if (before) this.drop(before);
    this.entries.set(entry.path, entry);
    const turn = turnOf(entry);
    let there = this.ofTurn.get(turn);
    if (!there) this.ofTurn.set(turn, (there = new Map()));
    there.set(entry.path, entry);
    this.sorted.delete(turn);
    if (this.partial && entry.path === `assistant://${this.partial.turn}`) this.partial = undefined;
  }

  private append(piece: OutputAppended): void {
    const entry = this.entries.get(piece.path);
    if (!entry) return;
    if (WHOLE.has(entry.scheme) || entry.body.length < OUTPUT_CHARS_MAX) entry.body += piece.text;
    const end = piece.offset + BigInt(new TextEncoder().encode(piece.text).length);
    if (end > entry.bodySizeBytes) entry.bodySizeBytes = end;
  }

  private forget(path: string): void {
    const entry = this.entries.get(path);
    if (entry) this.drop(entry);
    this.entries.delete(path);
    this.proposals.delete(path);
  }

  private drop(entry: Entry): void {
    const turn = turnOf(entry);
    this.ofTurn.get(turn)?.delete(entry.path);
    this.sorted.delete(turn);
  }
}

function grow(partial: Partial, { change }: Delta): void {
  if (change.case === "appendContent") partial.content += change.value;
  else if (change.case === "appendReasoning") partial.reasoning += change.value;
  else if (change.case === "beginCall") partial.calls[change.value.index] = { name: change.value.name, arguments: "" };
  else if (change.case === "growCall") {
    const call = partial.calls[change.value.index];
    if (call) call.arguments += change.value.arguments;
  } else if (change.case === "takeBack") {
    const { chars, calls } = change.value;
    if (chars) partial.content = [...partial.content].slice(0, -chars).join("");
    partial.calls.length = Math.min(partial.calls.length, calls);
  }
}

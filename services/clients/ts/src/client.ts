/** A client of an executor. */
import type { DescService, MessageInitShape } from "@bufbuild/protobuf";
import { type Client as Of, createClient, type Transport } from "@connectrpc/connect";
import { EntryService } from "#protos/turnwright/entries/v1/entry_service_pb.js";
import { ExecutorService, type WatchRunResponse } from "#protos/turnwright/executor/v1/executor_service_pb.js";
import type { QueuedTask, TaskSchema } from "#protos/turnwright/executor/v1/task_pb.js";
import { GrantService } from "#protos/turnwright/grants/v1/grant_service_pb.js";
import { ModelService } from "#protos/turnwright/models/v1/model_service_pb.js";
import { PlanService } from "#protos/turnwright/plans/v1/plan_service_pb.js";
import { ProjectService } from "#protos/turnwright/projects/v1/project_service_pb.js";
import { ProposalService } from "#protos/turnwright/proposals/v1/proposal_service_pb.js";
import { RuleService } from "#protos/turnwright/rules/v1/rule_service_pb.js";
import { RunService } from "#protos/turnwright/runs/v1/run_service_pb.js";
import type { WatchRunsResponse } from "#protos/turnwright/runs/v1/watch_runs_pb.js";
import { SessionService } from "#protos/turnwright/sessions/v1/session_service_pb.js";
import { TurnService } from "#protos/turnwright/turns/v1/turn_service_pb.js";
import type { Loop } from "#protos/turnwright/types/v1/loop_pb.js";
import type { Proposal } from "#protos/turnwright/types/v1/proposal_pb.js";
import { open } from "#transport";
import { sturdy } from "./calls.js";
import { TurnwrightError } from "./errors.js";
import { RunFold } from "./fold.js";
import type { ConnectOptions } from "./transport.js";
import { type WatchOptions, watchRun, type WatchRunOptions, type WatchRunRequest, watchRuns } from "./watch.js";

export type Task = MessageInitShape<typeof TaskSchema>;
/** True accepts a proposal, false rejects it and ends the task. A text answers a question; anything else it rejects, and the model reads it. */
export type Decision = boolean | string;

export interface RunToEndOptions extends WatchOptions {
  /** Decides on what the task proposes. Without it, its proposals wait for somebody else. */
  onProposal?: (proposal: Proposal) => Decision | Promise<Decision>;
  /** Is given the prose of the replies, piece by piece as it comes. */
  onText?: (text: string) => unknown;
  /** Is given every event of the run, and what they fold to. */
  onEvent?: (event: WatchRunResponse, fold: RunFold) => unknown;
}

/** A client of the executor at `HOST:PORT` or a URL, with a token of `turnwright token create`. Nothing is sent before the first call. */
export function connect(address: string, token: string, options: ConnectOptions = {}): Client {
  const { transport, close } = open(address, token, options);
  return new Client(sturdy(transport), close);
}

/**
 * Services of the contract as Connect's clients. Calls with one answer end within 30 s unless `timeoutMs` says otherwise, and are repeated
 * after a lost connection if that is safe. Whatever fails throws a TurnwrightError.
 */
export class Client {
  readonly entries: Of<typeof EntryService>;
  readonly executor: Of<typeof ExecutorService>;
  readonly grants: Of<typeof GrantService>;
  readonly models: Of<typeof ModelService>;
  readonly plans: Of<typeof PlanService>;
  readonly projects: Of<typeof ProjectService>;
  readonly proposals: Of<typeof ProposalService>;
  readonly rules: Of<typeof RuleService>;
  readonly runs: Of<typeof RunService>;
  readonly sessions: Of<typeof SessionService>;
  readonly turns: Of<typeof TurnService>;

  constructor(readonly transport: Transport, readonly close: () => void = () => {}) {
    this.entries = this.of(EntryService);
    this.executor = this.of(ExecutorService);
    this.grants = this.of(GrantService);
    this.models = this.of(ModelService);
    this.plans = this.of(PlanService);
    this.projects = this.of(ProjectService);
    this.proposals = this.of(ProposalService);
    this.rules = this.of(RuleService);
    this.runs = this.of(RunService);
    this.sessions = this.of(SessionService);
    this.turns = this.of(TurnService);
  }

  /** Any other service, of `@turnwright/client/protos`. */
  of<S extends DescService>(service: S): Of<S> {
    return createClient(service, this.transport);
  }

  /** Queues a task that may change things. Without a `run` a new one is created. */
  async act(task: Task): Promise<QueuedTask> {
    return (await this.executor.act({ task })).queued!;
  }

  /** Queues a task that only reads. */
  async ask(task: Task): Promise<QueuedTask> {
    return (await this.executor.ask({ task })).queued!;
  }

  /** The events of a run to its end, each once and in order, over as many connections as it takes. */
  watchRun(request: WatchRunRequest, options?: WatchRunOptions): AsyncGenerator<WatchRunResponse> {
    return watchRun(this.executor, this.runs, request, options);
  }

  /** How the runs of a project change: first all of them, unless `after` is the cursor of an earlier message. */
  watchRuns(request: { project: string; after?: string | undefined }, options?: WatchOptions): AsyncGenerator<WatchRunsResponse> {
    return watchRuns(this.runs, request, options);
  }

  /** Waits, however long it takes, until a task has ended: its loop, with status, summary and usage. */
  async runToEnd({ run, loop, cursor }: QueuedTask, options: RunToEndOptions = {}): Promise<Loop> {
    const { onProposal, onText, onEvent, ...watching } = options;
    const address = { project: run!.project, run: run!.run };
    const { sequence } = loop!;
    const fold = new RunFold(run);
    let turn = fold.latestTurn + 1, told = 0;
    const tell = async () => {
      // From the fold, because what came while there was no connection may be in a snapshot, without events of its own.
      for (; turn <= fold.latestTurn; turn++, told = 0) {
        const text = fold.proseOf(turn);
        if (text.length > told) await onText?.(text.slice(told));
        told = Math.max(told, text.length);
        if (turn === fold.latestTurn) return;
      }
    };
    const asked = new Map<string, Proposal>();
    for await (const message of this.watchRun({ ...address, after: cursor }, { ...watching, keepOpen: true })) {
      fold.apply(message);
      await onEvent?.(message, fold);
      await tell();
      const { event } = message;
      const changed = event.case === "runState" ? event.value.loop : event.case === "snapshot" && event.value.last ? event.value.run?.loop : undefined;
      if (changed?.sequence === sequence && changed.endTime) return changed;
      const current = fold.run?.loop?.sequence ?? 0;
      // Later loops are told of while they are queued, too: this one is over once the run is at one of them.
      if (current > sequence) break;
      if (!onProposal || current !== sequence) continue;
      for (const [path, proposal] of fold.proposals) {
        if (proposal.effect.case === "clientTool" || asked.get(path) === proposal) continue;
        asked.set(path, proposal);
        await this.decide(address, proposal, await onProposal(proposal));
      }
    }
    options.signal?.throwIfAborted();
    const ended = (await this.runs.getRun(address)).loops.find((each) => each.sequence === sequence);
    if (!ended) throw new Error(`The run ${address.run} has loop ${sequence} no more.`);
    return ended;
  }

  private async decide(address: { project: string; run: string }, { path, effect }: Proposal, decision: Decision): Promise<void> {
    const words = typeof decision === "string" ? decision : "";
    const isAnswer = words !== "" && effect.case === "question";
    try {
      await this.proposals.resolveProposal({
        ...address, path,
        decision: isAnswer || decision === true ? { case: "accept", value: { answer: words } } : { case: "reject", value: { comment: words } },
      });
    } catch (error) {
      if (TurnwrightError.of(error).reason !== "NOT_PROPOSED") throw error; // Somebody else was faster, and their decision stands.
    }
  }
}

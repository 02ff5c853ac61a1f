/** How the page reaches an executor: gRPC-Web at its own origin, which a door and an edge both speak, with a token. */
import { create } from "@bufbuild/protobuf";
import { type CallOptions, Code, ConnectError, type Client, createClient, type Interceptor, type Transport } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-web";
import { ErrorInfoSchema } from "@turnwright/protos/google/rpc/error_details_pb.js";
import { EntryService } from "@turnwright/protos/turnwright/entries/v1/entry_service_pb.js";
import { ExecutorService } from "@turnwright/protos/turnwright/executor/v1/executor_service_pb.js";
import { GrantService } from "@turnwright/protos/turnwright/grants/v1/grant_service_pb.js";
import { ModelService } from "@turnwright/protos/turnwright/models/v1/model_service_pb.js";
import { PlanService } from "@turnwright/protos/turnwright/plans/v1/plan_service_pb.js";
import { ProjectService } from "@turnwright/protos/turnwright/projects/v1/project_service_pb.js";
import { ProposalService } from "@turnwright/protos/turnwright/proposals/v1/proposal_service_pb.js";
import { RuleService } from "@turnwright/protos/turnwright/rules/v1/rule_service_pb.js";
import { RunService } from "@turnwright/protos/turnwright/runs/v1/run_service_pb.js";
import { SessionService } from "@turnwright/protos/turnwright/sessions/v1/session_service_pb.js";
import { TurnService } from "@turnwright/protos/turnwright/turns/v1/turn_service_pb.js";
import { type SessionCommand, SessionCommandSchema } from "@turnwright/protos/turnwright/types/v1/session_command_pb.js";

const KEPT = "turnwright.token";
const ATTEMPTS = 4;
const CALL_MS = 30_000;
const PAUSE_MS_MAX = 10_000;

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

/** The name of an error of Turnwright; undefined for what a proxy or a lost connection has ended. */
export const reason = (error: unknown): string | undefined => ConnectError.from(error).findDetails(ErrorInfoSchema)[0]?.reason;
export const isUnknownToken = (error: unknown): boolean => ConnectError.from(error).code === Code.Unauthenticated;
/** What a person reads of an error. */
export const words = (error: unknown): string => ConnectError.from(error).rawMessage;
const PASSING = new Set([Code.Unavailable, Code.Unknown, Code.Aborted, Code.Canceled, Code.DeadlineExceeded, Code.Internal]);
const isPassing = (error: unknown) => {
  const { code } = ConnectError.from(error);
  return code === Code.Unavailable || (reason(error) === undefined && PASSING.has(code));
};
export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const backoff = (attempt: number) => pause(Math.min(PAUSE_MS_MAX, 200 * 2 ** attempt));

function ownTransport(token: string): Transport {
  const withToken: Interceptor = (next) => (request) => {
    request.header.set("authorization", `Bearer ${token}`);
    return next(request);
  };
  return createGrpcWebTransport({ baseUrl: location.origin, interceptors: [withToken] });
}

export class Door {
  readonly entries: Client<typeof EntryService>;
  readonly executor: Client<typeof ExecutorService>;
  readonly grants: Client<typeof GrantService>;
  readonly models: Client<typeof ModelService>;
  readonly plans: Client<typeof PlanService>;
  readonly projects: Client<typeof ProjectService>;
  readonly proposals: Client<typeof ProposalService>;
  readonly rules: Client<typeof RuleService>;
  readonly runs: Client<typeof RunService>;
  readonly sessions: Client<typeof SessionService>;
  readonly turns: Client<typeof TurnService>;

  /** `isLive` is false where answers are of a file: nothing changes then, and nothing can be changed. */
  constructor(transport: Transport, readonly isLive: boolean) {
    this.entries = createClient(EntryService, transport);
    this.executor = createClient(ExecutorService, transport);
    this.grants = createClient(GrantService, transport);
    this.models = createClient(ModelService, transport);
    this.plans = createClient(PlanService, transport);
    this.projects = createClient(ProjectService, transport);
    this.proposals = createClient(ProposalService, transport);
    this.rules = createClient(RuleService, transport);
    this.runs = createClient(RunService, transport);
    this.sessions = createClient(SessionService, transport);
    this.turns = createClient(TurnService, transport);
  }

  static of(token: string): Door {
    return new Door(ownTransport(token), true);
  }

  /** Repeats what a lost connection has ended. The request has a request id, or may be repeated anyway. */
  async call<Q, A>(rpc: (request: Q, options?: CallOptions) => Promise<A>, request: Q): Promise<A> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await rpc(request, { timeoutMs: CALL_MS });
      } catch (error) {
        if (!this.isLive || !isPassing(error) || attempt === ATTEMPTS) throw error;
      }
      await backoff(attempt);
    }
  }

  submit(project: string, run: string, kind: SessionCommand["kind"]) {
    const command = create(SessionCommandSchema, { kind });
    return this.call(this.sessions.submitCommand, { project, run, commandId: crypto.randomUUID(), command });
  }

  /**
   * The messages of a stream that is opened again whenever it ends, until `signal` aborts. It is closed while nobody sees the
   * page, because a browser has six connections to a host without HTTP/2, for all its tabs.
   */
  async *resumed<M>(open: (signal: AbortSignal) => AsyncIterable<M>, signal: AbortSignal): AsyncGenerator<M> {
    for (let attempt = 0; !signal.aborted; attempt++) {
      await shown(signal);
      const connection = new AbortController();
      const close = () => connection.abort();
      const hidden = () => document.hidden && close();
      signal.addEventListener("abort", close);
      document.addEventListener("visibilitychange", hidden);
      try {
        for await (const message of open(connection.signal)) {
          attempt = 0;
          yield message;
        }
      } catch (error) {
        if (!connection.signal.aborted && !isPassing(error)) throw error;
      } finally {
        signal.removeEventListener("abort", close);
        document.removeEventListener("visibilitychange", hidden);
        close();
      }
      if (!this.isLive) return;
      await backoff(attempt);
    }
  }
}

function shown(signal: AbortSignal): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
  });
}

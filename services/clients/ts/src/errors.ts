/** What a call fails with: the names of docs/clients.md, which programs branch on, instead of texts, which are for people. */
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorInfoSchema } from "#protos/google/rpc/error_details_pb.js";
import type { ErrorReason } from "#protos/turnwright/types/v1/error_pb.js";

/** The name of an error. `ErrorReason` says what each means, and which values it has. */
export type Reason = Exclude<keyof typeof ErrorReason, "UNSPECIFIED">;

export class TurnwrightError extends Error {
  override readonly name = "TurnwrightError";

  private constructor(
    /** The text for people. `message` has the reason before it. */
    readonly text: string,
    readonly code: Code,
    /** Undefined for what no service of Turnwright has ended: a lost connection, a proxy, a deadline of the caller's. */
    readonly reason: Reason | undefined,
    /** What the error is about, by the names that `ErrorReason` lists, such as `run`. */
    readonly values: Readonly<Record<string, string>>,
    override readonly cause: ConnectError,
  ) {
    super(reason ? `${reason}: ${text}` : text, { cause });
  }

  static of(error: unknown): TurnwrightError {
    if (error instanceof TurnwrightError) return error;
    const cause = ConnectError.from(error);
    const [info] = cause.findDetails(ErrorInfoSchema);
    return new TurnwrightError(cause.rawMessage, cause.code, info?.reason as Reason | undefined, info?.metadata ?? {}, cause);
  }

  /** Whether the same call may succeed in a moment. Whoever has no reason was not answered by a service. */
  get isPassing(): boolean {
    return this.code === Code.Unavailable || (this.reason === undefined && OF_TRANSPORT.has(this.code));
  }
}

const OF_TRANSPORT = new Set([Code.Unknown, Code.Aborted, Code.Canceled, Code.DeadlineExceeded, Code.Internal]);

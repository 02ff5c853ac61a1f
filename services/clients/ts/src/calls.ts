/** Calls with one answer get a deadline and an id, and are repeated when a lost connection has ended them; errors get their names. */
import { create, type DescMessage, type MessageShape } from "@bufbuild/protobuf";
import type { StreamResponse, Transport } from "@connectrpc/connect";
import { TurnwrightError } from "./errors.js";
import { backoffMs, pause } from "./pauses.js";

const CALL_MS = 30_000;
const RETRIES_MAX = 4;
/** Lasts as long as its command. */
const UNLIMITED = "CallTool";

export function sturdy(transport: Transport): Transport {
  return {
    async unary(method, signal, timeoutMs, header, input, values) {
      const message = create(method.input, input);
      const mayBeRepeated = identify(method.input, message) || method.idempotency !== 0;
      const limitMs = timeoutMs ?? (method.name === UNLIMITED ? undefined : CALL_MS);
      const endMs = limitMs === undefined ? Infinity : Date.now() + limitMs;
      for (let failures = 1; ; failures++) {
        const leftMs = limitMs === undefined ? undefined : Math.max(1, endMs - Date.now());
        const pauseMs = backoffMs(failures);
        try {
          return await transport.unary(method, signal, leftMs, header, message, values);
        } catch (thrown) {
          const error = TurnwrightError.of(thrown);
          const isLast = failures > RETRIES_MAX || Date.now() + pauseMs >= endMs || signal?.aborted;
          if (isLast || !mayBeRepeated || !error.isPassing) throw error;
        }
        await pause(pauseMs, signal);
      }
    },
    async stream(method, signal, timeoutMs, header, input, values) {
      try {
        const answer = await transport.stream(method, signal, timeoutMs, header, input, values);
        return { ...answer, message: named(answer.message) } as StreamResponse<typeof method.input, typeof method.output>;
      } catch (error) {
        throw TurnwrightError.of(error);
      }
    },
  };
}

async function* named<M>(messages: AsyncIterable<M>): AsyncGenerator<M> {
  try {
    yield* messages;
  } catch (error) {
    throw TurnwrightError.of(error);
  }
}

/** Whether a call is carried out once, however often it is sent: it has an id, which it gets here if the caller chose none. */
function identify<D extends DescMessage>(description: D, message: MessageShape<D>): boolean {
  const fields = message as unknown as Record<string, unknown>;
  for (const name of ["requestId", "commandId"]) {
    if (!description.field[name]) continue;
    fields[name] ||= newId();
    return true;
  }
  const task = description.field["task"]?.message;
  return task && fields["task"] ? identify(task, fields["task"] as MessageShape<typeof task>) : false;
}

/** `crypto.randomUUID` is not there in pages of plaintext addresses. */
function newId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

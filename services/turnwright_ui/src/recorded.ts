/** Answers that stand in the page itself: a run that was exported, without a server. */
import { type DescMessage, type DescMethod, fromBinary, type MessageShape } from "@bufbuild/protobuf";
import { base64Decode } from "@bufbuild/protobuf/wire";
import { Code, ConnectError, type StreamResponse, type Transport, type UnaryResponse } from "@connectrpc/connect";

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** By method, and by what its request names: messages in base64. */
export interface Recording {
  project: string;
  run: string;
  answers: Record<string, Record<string, string[]>>;
}

export function recording(): Recording | undefined {
  const text = document.getElementById("recording")?.textContent?.trim();
  return text ? (JSON.parse(text) as Recording) : undefined;
}

/** What tells requests of one method from each other, in a file that has one run. */
function keyOf(request: object): string {
  const { turn, planId, version, pageToken } = request as { turn?: number; planId?: string; version?: number; pageToken?: string };
  return [turn, planId, version, pageToken].filter(Boolean).join("/");
}

export function recordedTransport({ answers }: Recording): Transport {
  const find = (method: DescMethod, request: object): string[] => {
    const found = answers[method.name]?.[keyOf(request)];
    if (!found) throw new ConnectError("This file does not have it. Open the run where it is kept.", Code.NotFound);
    return found;
  };
  const about = <I extends DescMessage, O extends DescMessage>(method: DescMethod & { input: I; output: O }) =>
    ({ service: method.parent, header: new Headers(), trailer: new Headers() });
  return {
    async unary(method, _signal, _timeout, _header, input) {
      const answer = find(method, input)[0]!;
      await pause(0);
      const message = fromBinary(method.output, base64Decode(answer)) as MessageShape<typeof method.output>;
      return { ...about(method), stream: false, method, message } as UnaryResponse<typeof method.input, typeof method.output>;
    },
    async stream(method, _signal, _timeout, _header, input) {
      async function* messages() {
        for await (const request of input) {
          for (const each of find(method, request)) {
            await pause(0); // As from a network: the page is drawn between the parts of a long run.
            yield fromBinary(method.output, base64Decode(each));
          }
        }
      }
      return { ...about(method), stream: true, method, message: messages() } as unknown as StreamResponse<typeof method.input, typeof method.output>;
    },
  };
}

/** In Node. */
import { Agent } from "node:http";
import { Agent as SecureAgent } from "node:https";
import { Code, ConnectError, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { ErrorInfoSchema } from "#protos/google/rpc/error_details_pb.js";
import { type ConnectOptions, type Opened, urlOf, withToken } from "./transport.js";

/** Executors take a ping every ten seconds at most. */
const PING_MS = 20_000;

export function open(address: string, token: string, options: ConnectOptions): Opened {
  const baseUrl = urlOf(address, options);
  const { protocol = "grpc", ca, cert, key } = options;
  const files = Object.fromEntries(Object.entries({ ca, cert, key }).filter(([, file]) => file)) as Record<string, string>;
  const interceptors = [refusedAt(address), withToken(token)];
  if (protocol === "grpc") {
    const sessionManager = new Http2SessionManager(baseUrl, { pingIntervalMs: PING_MS }, files);
    return { transport: createGrpcTransport({ baseUrl, interceptors, sessionManager }), close: () => sessionManager.abort() };
  }
  const agent = baseUrl.startsWith("https:") ? new SecureAgent({ ...files, keepAlive: true }) : new Agent({ keepAlive: true });
  const create = protocol === "connect" ? createConnectTransport : createGrpcWebTransport;
  const transport = create({ baseUrl, httpVersion: "1.1", nodeOptions: { agent }, interceptors, useBinaryFormat: true });
  return { transport, close: () => agent.destroy() };
}

/** Gives the error of a refused connection a reason, the address, and what to do. */
function refusedAt(address: string): Interceptor {
  return (next) => async (request) => {
    try {
      return await next(request);
    } catch (error) {
      if (!(error instanceof ConnectError) || !/\bECONNREFUSED\b/.test(error.rawMessage) || error.details.length) throw error;
      const metadata = { service: "executor", address };
      const text = `The executor at ${address} does not answer: ${error.rawMessage}. Is it running there, for instance by \`turnwright serve\`?`;
      const value = { domain: "turnwright", reason: "SERVICE_UNAVAILABLE", metadata };
      throw new ConnectError(text, Code.Unavailable, undefined, [{ desc: ErrorInfoSchema, value }], error);
    }
  };
}

/** In browsers, and wherever else there is `fetch` alone. */
import { createGrpcWebTransport } from "@connectrpc/connect-web";
import { type ConnectOptions, type Opened, urlOf, withToken } from "./transport.js";

export function open(address: string, token: string, options: ConnectOptions): Opened {
  const { protocol = "grpc-web", ca, cert, key } = options;
  if (protocol !== "grpc-web" || ca || cert || key) throw new TypeError("A browser speaks grpc-web, and has its own certificates.");
  const transport = createGrpcWebTransport({ baseUrl: urlOf(address, options), interceptors: [withToken(token)] });
  return { transport, close: () => {} };
}

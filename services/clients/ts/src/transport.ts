/** What both ways to an executor have in common: by Node, and by a browser. */
import type { Interceptor, Transport } from "@connectrpc/connect";

export interface ConnectOptions {
  /**
   * `grpc` over HTTP/2, to an executor's address or an edge: Node's default. `connect` and `grpc-web` over HTTP/1.1, to its HTTP port.
   * Browsers speak `grpc-web`, which both take.
   */
  protocol?: "grpc" | "connect" | "grpc-web";
  /** Authorities that the executor's certificate may be of, in PEM. Default: those of the system. Browsers have their own. */
  ca?: string | Uint8Array;
  /** A certificate to present, in PEM, with its key. Browsers present one that their user has installed. */
  cert?: string | Uint8Array;
  key?: string | Uint8Array;
  /** Plaintext also to other hosts: a mesh or a private network protects the connection. Default: false. */
  insecure?: boolean;
}

export interface Opened {
  transport: Transport;
  /** Ends its connections, with what is under way. */
  close: () => void;
}

const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\])$/;

/** The URL of `HOST:PORT` or of a URL: https, unless it is on this host. Throws a TypeError where others could read the token. */
export function urlOf(address: string, { ca, insecure = false }: ConnectOptions): string {
  const isOwn = LOOPBACK.test(new URL(`http://${address.replace(/^\w+:\/\//, "")}`).hostname);
  const url = new URL(/^\w+:\/\//.test(address) ? address : `${(isOwn || insecure) && !ca ? "http" : "https"}://${address}`);
  if (url.protocol !== "https:" && !isOwn && !insecure) {
    throw new TypeError(
      `Turnwright does not call ${url.origin} in plaintext, because others could read the token. Use https, or the option insecure if a mesh or a private network protects the connection.`,
    );
  }
  return url.origin + url.pathname.replace(/\/$/, "");
}

export function withToken(token: string): Interceptor {
  return (next) => (request) => {
    request.header.set("authorization", `Bearer ${token}`);
    return next(request);
  };
}

"""The ASGI application: who may send what where, and then the library that speaks the protocols.

Pages of other origins are refused unless they are named, and so is a name by which the port is not to be called, on
loopback one that is not this host's: a page that has its own name resolve to it would else be of the same origin.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from importlib.resources import files
from typing import Any, Final

from connectrpc.compression.gzip import GzipCompression
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from connectrpc.server import ConnectASGIApplication

from turnwright_core.limits import MESSAGE_BYTES_MAX
from turnwright_core.rpc.transport import is_loopback
from turnwright_kit.addresses import host_of
from turnwright_kit.errors import translate
from turnwright_kit.guard import GuardedServer
from turnwright_kit.http import events
from turnwright_kit.http.calls import Admission, HttpCall, current_call, endpoints
from turnwright_kit.http.codecs import codecs
from turnwright_kit.http.exchange import Exchange, Headers, Receive, Scope, Send
from turnwright_kit.settings import HttpPort

DOCUMENT: Final = "/openapi.json"
"""The path of the contract as an OpenAPI document, which strangers may read: it is public."""

WEB: Final = ("application/grpc-web", "application/grpc-web+proto", "application/grpc-web+json")
UNARY: Final = ("application/json", "application/proto", *WEB)
STREAMS: Final = ("application/connect+json", "application/connect+proto", *WEB)

ALLOWED: Final = (
    "authorization, connect-accept-encoding, connect-content-encoding, connect-protocol-version, connect-timeout-ms, "
    "content-encoding, content-type, grpc-timeout, last-event-id, traceparent, tracestate, turnwright-receive-bytes, "
    "turnwright-tier, x-grpc-web, x-user-agent"
)
"""Request headers of pages of other origins."""

SHOWN: Final = "connect-content-encoding, grpc-message, grpc-status, grpc-status-details-bin"
"""Response headers that such pages may read."""

ADMITTED: Final = "turnwright.admitted"
"""Set in the state of a request whose caller was let in."""

PREFLIGHT_S: Final = 7200
"""Seconds for which a browser remembers what such a page may send."""


class Door(ConnectASGIApplication[GuardedServer]):
    """The application for the services of one server."""

    path = "/"

    def __init__(self, guarded: GuardedServer, port: HttpPort) -> None:
        self._endpoints_of = endpoints(guarded.names)
        self.admission = Admission(guarded)
        self.bounds, self._origins = port.bounds, frozenset(port.origins)
        self._is_loopback, self._hosts = is_loopback(port.address), frozenset(port.hosts)
        self._files = port.files
        super().__init__(
            service=guarded,
            endpoints=lambda _: self._endpoints_of,
            interceptors=(self.admission,),
            read_max_bytes=MESSAGE_BYTES_MAX,
            compressions=(GzipCompression(level=1),),
            codecs=codecs(),
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return None
        scope["headers"] = [(name, value) for name, value in scope["headers"] if value.isascii()]
        given = dict(scope["headers"])
        host, origin = (given.get(name, b"").decode() for name in (b"host", b"origin"))
        exchange = Exchange(scope, receive, send, self._sharing(origin), self.bounds)
        if problem := self._misnamed(host):
            return await exchange.refuse(403, "permission_denied", problem)
        if {b"content-length", b"transfer-encoding"} <= given.keys():
            return await exchange.refuse(
                400,
                "invalid_argument",
                "Send the length of a body, or chunks, and not both.",
                [(b"connection", b"close")],
            )
        if origin and origin not in self._origins and origin not in (f"http://{host}", f"https://{host}"):
            return await exchange.refuse(
                403, "permission_denied",
                f"Pages of {origin} may not call: name it in TURNWRIGHT_HTTP_ORIGINS.",
            )  # fmt: skip
        if origin and scope["method"] == "OPTIONS":
            return await exchange.answer(204, b"", more=self._preflight())
        return await self._route(scope, exchange)

    def close(self) -> None:
        """Take no more calls."""
        self.admission.is_closed = True

    def _misnamed(self, host: str) -> str:
        """What is wrong with the name by which this is called; empty if nothing is."""
        if self._hosts:
            is_known = host_of(host) in self._hosts
            return "" if is_known else f"Nothing is called {host!r} here: name it in TURNWRIGHT_HTTP_HOSTS."
        if not self._is_loopback or _is_this_host(host):
            return ""
        return (
            f"This address is of this host only, and {host!r} is not its name: call it as localhost. A proxy must send "
            "`Host: localhost`, or its name be in TURNWRIGHT_HTTP_HOSTS."
        )

    def _sharing(self, origin: str) -> Iterator[tuple[bytes, bytes]]:
        if self._origins:
            yield b"vary", b"origin"
        if origin in self._origins:
            yield b"access-control-allow-origin", origin.encode()
            yield b"access-control-expose-headers", SHOWN.encode()

    @staticmethod
    def _preflight() -> Headers:
        yield b"access-control-allow-methods", b"GET, POST"
        yield b"access-control-allow-headers", ALLOWED.encode()
        yield b"access-control-max-age", str(PREFLIGHT_S).encode()

    async def _route(self, scope: Scope, exchange: Exchange) -> None:
        path, verb = scope["path"], scope["method"]
        if path == DOCUMENT and verb in ("GET", "HEAD"):
            return await exchange.answer(200, document())
        if verb in ("GET", "HEAD") and (file := self._files().get(path)):
            is_packed = b"gzip" in exchange.headers.get(b"accept-encoding", b"")
            encoded = [(b"content-encoding", b"gzip")] if is_packed else []
            body = file.packed if is_packed else file.body
            return await exchange.answer(200, body, file.kind, [*file.headers, (b"vary", b"accept-encoding"), *encoded])
        if not (endpoint := self._endpoints_of.get(path)):
            message = f"There is no method at {path[:200]!r}: {DOCUMENT} lists them."
            return await exchange.refuse(404, "unimplemented", message)
        method: MethodInfo[Any, Any] = endpoint.method
        is_stream = method.stream_type is not StreamType.UNARY
        as_events = method.stream_type is StreamType.SERVER_STREAM and events.asks_for_events(exchange)
        reads = method.idempotency_level is IdempotencyLevel.NO_SIDE_EFFECTS and (as_events or not is_stream)
        if verb != "POST" and not (verb == "GET" and reads):
            allowed = "GET, POST" if reads else "POST"
            message = f"{path} is called by {allowed}; a stream by GET if `accept` asks for {events.KIND}."
            return await exchange.refuse(405, "unimplemented", message, [(b"allow", allowed.encode())])
        kinds = UNARY if as_events or not is_stream else STREAMS
        kind = exchange.headers.get(b"content-type", b"").decode().partition(";")[0].strip().lower()
        if (verb == "POST" and kind not in kinds) or not scope["query_string"].isascii():
            return await exchange.refuse(
                415, "unimplemented", f"Send {path} with `content-type` {' or '.join(kinds[:2])}, not {kind!r}.",
                [(b"accept-post", ", ".join(kinds).encode())],
            )  # fmt: skip
        return await self._called(scope, exchange, method, as_events=as_events)

    async def _called(self, scope: Scope, exchange: Exchange, method: MethodInfo[Any, Any], *, as_events: bool) -> None:
        exchange.is_upload = method.stream_type is StreamType.CLIENT_STREAM
        metadata = tuple((name.decode(), value.decode()) for name, value in scope["headers"])
        call = HttpCall(
            scope["path"], metadata, _peer(scope), exchange.length, partial(scope["state"].__setitem__, ADMITTED, True)
        )
        current_call.set(call)
        exchange.take_in = call.take_in
        receive: Receive = events.received(scope, exchange, method) if as_events else exchange.receive
        send: Send = events.sent(exchange) if as_events else exchange.send
        wanted: Any = events.as_stream(scope) if as_events else scope
        try:
            await super().__call__(wanted, receive, send)
        except TimeoutError:
            # The client does not read: its connection is closed.
            raise
        except Exception as error:
            translate(error, scope["path"])
            raise
        finally:
            call.let_go()


@cache
def document() -> bytes:
    """One for all: readers who are slow hold what they are sent."""
    return (files("turnwright") / "openapi.json").read_bytes()


def _peer(scope: Scope) -> str:
    """The other end of the connection, as gRPC names it."""
    host, port = scope["client"] or ("", 0)
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _is_this_host(host: str) -> bool:
    name = host_of(host)
    with suppress(ValueError):
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    return False

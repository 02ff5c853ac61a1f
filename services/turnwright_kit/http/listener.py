"""The port: uvicorn's HTTP/1.1 on the loop of the server beside it, with bounds on what strangers can hold.

uvicorn's own server is not used, because it takes the process's signals and wakes up ten times a second. HTTP/2 is a
matter of the proxy in front.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Iterable
from typing import Any, Final, Protocol

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from turnwright_core.rpc.certificates import Certificates, Tls
from turnwright_core.rpc.transport import check_plaintext
from turnwright_kit.http.door import ADMITTED
from turnwright_kit.settings import HttpBounds

HEAD_BYTES_MAX: Final = 32 * 1024
"""Longest head of a request, with the message of a GET in it, in bytes."""

BACKLOG: Final = 128
"""Connections that wait to be accepted."""


class _Connection(H11Protocol):
    """One connection."""

    bounds = HttpBounds()
    since_s = 0.0
    """When it began to wait for a request, in seconds of the loop's clock."""
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As in asyncio."""
        super().connection_made(transport)
        self.since_s = self.loop.time()
        if len(self.connections) > self.bounds.connections_max:
            one = self._least_needed()
            one.transport.abort()
            if one is self:
                return
        if sock := transport.get_extra_info("socket"):
            # An answer's head and body are written apart: the second would wait for the first to be acknowledged.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(self.bounds.stalled_s * 1000))
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """As in asyncio."""
        if self._late is None and self.is_between():
            self._expect_head()
        super().data_received(data)
        if not self.is_between():
            self._expect_nothing()

    def connection_lost(self, exc: Exception | None) -> None:
        """As in asyncio."""
        self._expect_nothing()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """As in uvicorn."""
        self.since_s = self.loop.time()
        super().on_response_complete()

    def _least_needed(self) -> _Connection:
        """The one that waits longest for a request, or has longest been answering a stranger; else this one.

        Else strangers who ask for nothing, or do not read what everybody may, could keep everybody out.
        """
        ours: Iterable[Any] = self.connections
        open_to_all: list[_Connection] = [one for one in ours if not (one.is_called() or one.transport.is_closing())]
        return min(open_to_all, key=lambda one: one.since_s)

    def is_called(self) -> bool:
        """Whether a call is under way whose caller was let in."""
        return not self.is_between() and self.scope["state"].get(ADMITTED, False)

    def is_between(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _expect_head(self) -> None:
        self._late = self.loop.call_later(self.bounds.head_s, self.transport.abort)

    def _expect_nothing(self) -> None:
        if self._late:
            self._late.cancel()
            self._late = None


class Application(Protocol):
    """What an address serves. Of a request whose caller was let in, it sets ADMITTED in the state."""

    bounds: HttpBounds

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

    def close(self) -> None:
        """Take no more calls."""


class HttpListener:
    """One address at which a door is open."""

    def __init__(self, door: Application, address: str, tls: Tls) -> None:
        """Bind. Raises OSError if the address cannot be bound, TurnwrightError if others could read it."""
        if not tls.has_certificate:
            check_plaintext(address, tls, "listen on", "Set TURNWRIGHT_TLS_CERT and TURNWRIGHT_TLS_KEY")
        host, _, port = address.rpartition(":")
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, place = found[0]
        self._socket = socket.create_server(place[:2], family=family, backlog=BACKLOG)
        self.address = f"{host}:{self._socket.getsockname()[1]}"
        self.url = f"{'https' if tls.has_certificate else 'http'}://{self.address}"
        self._door, self._context = door, _context(tls) if tls.has_certificate else None
        self._state = ServerState()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        config = Config(
            self._door,
            http=_Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            proxy_headers=False,
            log_config=None,
            # Errors of calls are logged where they are translated; what strangers send is not worth a line.
            log_level="critical",
            access_log=False,
            timeout_keep_alive=self._door.bounds.idle_s,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            reset_contextvars=True,
        )
        loop = asyncio.get_running_loop()

        def connection() -> asyncio.Protocol:
            made = _Connection(config, self._state, {}, loop)
            made.bounds = self._door.bounds
            return made

        more: dict[str, Any] = {"ssl_handshake_timeout": self._door.bounds.head_s} if self._context else {}
        self._server = await loop.create_server(connection, sock=self._socket, ssl=self._context, **more)

    def close(self) -> None:
        """Take no more connections and calls; connections end with what they are doing."""
        self._door.close()
        if self._server:
            self._server.close()
        self._socket.close()
        for connection in list(self._state.connections):
            connection.shutdown()

    async def ended(self, within_s: float) -> None:
        """Wait so long for the requests in progress, then end them."""
        if tasks := set(self._state.tasks):
            _, late = await asyncio.wait(tasks, timeout=within_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for connection in list(self._state.connections):
            connection.transport.abort()


def _context(tls: Tls) -> ssl.SSLContext:
    """What handshakes are made with: the newest certificates at each."""
    used = tls.current()
    first = latest = _context_of(used, tls)

    def take_newest(connection: ssl.SSLObject, *_: object) -> None:
        nonlocal used, latest
        if (found := tls.current()) is not used:
            used, latest = found, _context_of(found, tls)
        # A whole one: an authority that was taken away must not be trusted any more.
        connection.context = latest

    first.sni_callback = take_newest
    return first


def _context_of(found: Certificates, tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # The library reads files only; this one is in memory, and has no name.
    with os.fdopen(os.memfd_create("tls"), "w+b") as file:
        file.write(found.chain + b"\n" + found.key)
        file.flush()
        context.load_cert_chain(f"/dev/fd/{file.fileno()}")
    if tls.mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=found.authorities.decode())
    return context

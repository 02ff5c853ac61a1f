"""A TCP proxy between a client and a service, told what to do to the connections that go through it.

It knows the frames of HTTP/2 that services send, so that it can end one call the way that HTTP/2 proxies do.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

DATA, HEADERS, RST_STREAM, GOAWAY = 0, 1, 3, 7
END_STREAM, END_HEADERS = 1, 4
NO_ERROR, INTERNAL_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0, 2, 7, 8, 11


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def reset(stream: int, code: int) -> bytes:
    """The frame that ends one stream."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4))


def trailers(stream: int, status: int, message: str = "") -> bytes:
    """The frame that ends one stream with a status of gRPC; its headers are literals, which no table is needed for."""
    fields = {"grpc-status": str(status), **({"grpc-message": message} if message else {})}
    block = b"".join(
        b"\0" + len(part[0]).to_bytes() + part[0].encode() + len(part[1]).to_bytes() + part[1].encode()
        for part in fields.items()
    )
    return frame(HEADERS, END_STREAM | END_HEADERS, stream, block)


@dataclass(eq=False)
class Connection:
    """One connection of a client, and the one that the proxy opened for it."""

    client: asyncio.StreamWriter
    service: asyncio.StreamWriter
    is_stalled: bool = False
    streams: set[int] = field(default_factory=set)
    """Calls that the service has answered something to and that have not ended."""
    cut: set[int] = field(default_factory=set)
    """Calls that the proxy has ended: what the service says on them goes nowhere, but for headers, which have a state."""


@dataclass
class Proxy:
    address: str = ""
    is_opaque: bool = False
    """What goes through cannot be read: TLS."""
    connections: list[Connection] = field(default_factory=list)
    accepted: int = 0
    is_refusing: bool = False
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """New connections wait until it is set."""
    idle_s: float | None = None
    """Seconds without a byte from the service after which a connection is closed."""
    on_data: Callable[[Connection, int], None] | None = None
    """Called with the stream before each message of the service is passed on."""

    def reset(self) -> None:
        """Reset all connections."""
        for connection in self._taken():
            linger = struct.pack("ii", 1, 0)
            connection.client.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.client.transport.abort()
            connection.service.transport.abort()

    def half_close(self) -> None:
        """Say to all clients that nothing more comes, and go on reading."""
        for connection in self._taken():
            connection.client.write_eof()

    def close(self) -> None:
        """End all connections as a service does that leaves."""
        for connection in self._taken():
            connection.client.close()
            connection.service.close()

    def go_away(self) -> None:
        """Tell all clients to go, and end what is under way a moment later: the age of a connection has passed."""
        for connection in self._taken():
            last = max(connection.streams, default=0)
            connection.client.write(frame(GOAWAY, 0, 0, last.to_bytes(4) + NO_ERROR.to_bytes(4)))
            connection.client.close()
            connection.service.close()

    def stall(self) -> None:
        """Pass nothing on any more on the connections of now, and say nothing of it."""
        for connection in self._taken():
            connection.is_stalled = True

    def end_calls(self, ending: Callable[[int], bytes]) -> None:
        """End the calls that are under way by a frame for each."""
        for connection in self.connections:
            self.end_calls_of(connection, ending)

    def end_calls_of(self, connection: Connection, ending: Callable[[int], bytes]) -> None:
        for stream in connection.streams - connection.cut:
            connection.cut.add(stream)
            connection.client.write(ending(stream))

    def _taken(self) -> list[Connection]:
        taken, self.connections = self.connections, []
        return taken

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: str) -> None:
        self.accepted += 1
        if self.is_refusing:
            writer.transport.abort()
            return
        await self.gate.wait()
        to_reader, to_writer = await _connected(upstream)
        connection = Connection(writer, to_writer)
        self.connections.append(connection)
        upwards = asyncio.create_task(_bytes(reader, to_writer, connection))
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                await self._frames(to_reader, writer, connection)
        finally:
            # Before anything is waited for: the proxy may end in the middle of this.
            upwards.cancel()
            if connection in self.connections:
                self.connections.remove(connection)
            for end in (writer, to_writer):
                end.close()
            ended = (end.wait_closed() for end in (writer, to_writer))
            await asyncio.gather(upwards, *ended, return_exceptions=True)

    async def _frames(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Connection) -> None:
        if self.is_opaque:
            return await _bytes(reader, writer, connection)
        while True:
            async with asyncio.timeout(self.idle_s):
                head = await reader.readexactly(9)
                payload = await reader.readexactly(int.from_bytes(head[:3]))
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:])
            if kind in (DATA, HEADERS):
                connection.streams.add(stream)
                if kind == DATA and self.on_data and stream not in connection.cut:
                    self.on_data(connection, stream)
                if flags & END_STREAM:
                    connection.streams.discard(stream)
            is_cut = stream in connection.cut and kind not in (HEADERS, RST_STREAM)
            if not connection.is_stalled and not is_cut:
                writer.write(head + payload)
                await writer.drain()


async def _bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: Connection) -> None:
    while data := await reader.read(65536):
        if not connection.is_stalled:
            writer.write(data)
            await writer.drain()
    writer.write_eof()


async def _connected(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.startswith("unix:"):
        return await asyncio.open_unix_connection(address.removeprefix("unix:"))
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


@contextlib.asynccontextmanager
async def proxied(upstream: str, *, is_opaque: bool = False) -> AsyncIterator[Proxy]:
    """A proxy on the loopback in front of a service."""
    proxy = Proxy(is_opaque=is_opaque)
    proxy.gate.set()
    under_way: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        with contextlib.suppress(asyncio.CancelledError):
            await proxy.serve(reader, writer, upstream)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

"""The two ways to a server: its standard streams, in the sandbox; and streamable HTTP. Both with bounds.

A server is another's program. A message that is too long, or one after another that is none, ends the connection; what
it writes to standard error is kept only at its end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
import httpx2
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from msgspec import Struct

from turnwright_kit.sandbox.command_process import CommandProcess
from turnwright_kit.sandbox.environment import allowed_environment
from turnwright_kit.sandbox.sandbox import Sandbox
from turnwright_kit.sandbox.starting import ConfinedCommand, Pipes, ProcessLimits, opened_pipes

MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Longest message of a server, and longest answer by HTTP."""
UNREADABLE_MAX: Final = 100
"""Lines in a row that are no messages before a connection ends: some servers print to their standard output."""
TAIL_BYTES: Final = 2048
"""What is kept of standard error."""
HTTP_CONNECT_S: Final = 10.0
LEAVE_S: Final = 2.0
"""Seconds that a server has to end once its input has."""
READ_BYTES: Final = 64 * 1024
"""What is read of its output before it is wanted, about: a server that floods has a pipe to fill, not our memory."""
LINES_PER_S: Final = 1000.0
"""Lines a second that are read of all servers of a project, and as many at once of those that have rested."""
LINE_BYTES: Final = 16 * 1024
"""Bytes of a line that count as one more."""
LIMITS: Final = ProcessLimits(cpu_s=0)
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class Pace:
    """How fast the servers of one project are read: there is one event loop, and a flood would take it from others."""

    def __init__(self) -> None:
        self._paid_s = 0.0

    async def taken(self, data: bytes | bytearray) -> None:
        """Wait until as much may be read again; who writes faster waits at a full pipe."""
        now_s = asyncio.get_running_loop().time()
        lines = max(1, data.count(b"\n")) + len(data) // LINE_BYTES
        self._paid_s = max(self._paid_s, now_s - 1.0) + lines / LINES_PER_S
        if self._paid_s > now_s:
            await asyncio.sleep(self._paid_s - now_s)


class Complaint:
    """Why a connection has ended, as far as anybody knows."""

    def __init__(self) -> None:
        self.reason = ""
        self.tail = b""
        self.secrets: Collection[str] = ()
        """What nobody is told of the tail: many programs complain of a key by showing it."""
        self.login = ""
        """That somebody has to log in, and how; empty: nobody has to."""
        self.ended: Callable[[], None] = lambda: None
        """Is called once the server's output has ended."""

    def words(self) -> str:
        tail = self.tail.decode(errors="replace")
        # One may be a part of another, and of one the beginning may be gone.
        for secret in sorted(self.secrets, key=len, reverse=True):
            tail = tail.replace(secret, "***")
            tail = next((tail[n:] for n in range(len(tail), 0, -1) if secret.endswith(tail[:n])), tail)
        output = " ".join(tail.split())[-300:]
        return "; ".join(filter(None, (self.reason or self.login, output and f"it said: {output}")))


class StdioServer(Struct, frozen=True):
    """A program that speaks the protocol on its standard streams."""

    argv: tuple[str, ...]
    root: Path
    environment: Mapping[str, str]
    sandbox: Sandbox
    pace: Pace
    caches: str = ""
    secrets: frozenset[str] = frozenset()
    """Those in its environment."""

    @asynccontextmanager
    async def opened(self, complaint: Complaint) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Its output and its input while it runs. Raises OSError if it cannot be started."""
        complaint.secrets = self.secrets
        given = {**allowed_environment(os.environ), **self.environment}
        command = ConfinedCommand(self.argv, self.root, given, LIMITS, caches=self.caches)
        async with AsyncExitStack() as leaving:
            pipes = leaving.enter_context(opened_pipes(has_input=True))
            reader, complaints, writer = await _streams(pipes, leaving)
            process = command.start(self.sandbox, pipes)
            leaving.push_async_callback(_end, process)
            hearing = _to_the_end(_listen(complaints, complaint, self.pace))
            listening = asyncio.create_task(hearing, name="what a program says")
            leaving.callback(listening.cancel)
            leaving.callback(writer.close)
            yield reader, writer

    @asynccontextmanager
    async def connected(self, complaint: Complaint) -> AsyncIterator[Streams]:
        """Its messages of MCP while it runs. Raises OSError if it cannot be started."""
        async with self.opened(complaint) as pipes, _carried(*pipes, complaint, self.pace) as streams:
            yield streams


async def _listen(complaints: asyncio.StreamReader, complaint: Complaint, pace: Pace) -> None:
    while piece := await complaints.read(TAIL_BYTES):
        complaint.tail = (complaint.tail + piece)[-TAIL_BYTES:]
        await pace.taken(piece)


async def _end(process: CommandProcess) -> None:
    with anyio.CancelScope(shield=True):
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await process.wait()
        await process.kill()


async def _streams(
    pipes: Pipes, leaving: AsyncExitStack
) -> tuple[asyncio.StreamReader, asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    readers = []
    for channel, limit in ((1, READ_BYTES), (2, TAIL_BYTES)):
        reader = asyncio.StreamReader(limit)
        file = leaving.enter_context(os.fdopen(pipes.take_reader(channel), "rb", 0))
        transport, _ = await loop.connect_read_pipe(lambda reader=reader: asyncio.StreamReaderProtocol(reader), file)  # type: ignore[misc]
        leaving.callback(transport.close)
        readers.append(reader)
    file = leaving.enter_context(os.fdopen(pipes.take_input(), "wb", 0))
    sending, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, file)
    leaving.callback(_abort, sending)
    writer = asyncio.StreamWriter(sending, protocol, None, loop)
    return readers[0], readers[1], writer


def _abort(sending: asyncio.WriteTransport) -> None:
    # One that is closed has forgotten its loop.
    with suppress(AttributeError):
        sending.abort()


@asynccontextmanager
async def _carried(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    complaint: Complaint,
    pace: Pace,
) -> AsyncIterator[Streams]:
    """Messages between a process and a session, one at a time in each direction."""
    incoming, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outbox, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with incoming:
            unreadable = 0
            while line := await line_of(reader, complaint, pace):
                message = _message(line)
                unreadable = unreadable + 1 if isinstance(message, Exception) else 0
                if unreadable > UNREADABLE_MAX:
                    complaint.reason = f"it wrote {unreadable} lines which are not messages of the protocol"
                    return
                await incoming.send(message)

    async def write() -> None:
        async with outgoing:
            async for message in outgoing:
                writer.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await writer.drain()

    tasks = [asyncio.create_task(_to_the_end(work()), name=f"mcp {work.__name__}") for work in (read, write)]
    # A server that no longer reads is gone, too: its requests must not hang.
    tasks[1].add_done_callback(lambda _: incoming.close())
    tasks[0].add_done_callback(lambda _: complaint.ended())
    try:
        yield inbox, outbox
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in (inbox, outbox, incoming, outgoing):
            stream.close()


async def _to_the_end(work: Coroutine[None, None, None]) -> None:
    """Whatever breaks a stream is its end."""
    with suppress(OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
        await work


async def line_of(reader: asyncio.StreamReader, complaint: Complaint, pace: Pace) -> bytes:
    """A line; empty at the end."""
    line = bytearray()
    while len(line) <= MESSAGE_BYTES_MAX:
        try:
            line += await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            complaint.reason = complaint.reason or "its output has ended"
            return b""
        except asyncio.LimitOverrunError as error:
            line += await reader.readexactly(error.consumed)
            continue
        await pace.taken(line)
        return bytes(line)
    complaint.reason = f"it sent a message of more than {MESSAGE_BYTES_MAX} bytes"
    return b""


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


class HttpServer(Struct, frozen=True):
    """A server that speaks streamable HTTP."""

    url: str
    headers: Mapping[str, str]
    allows: Callable[[str], None]
    """Raises ValueError for a URL at a host that may not be asked: a server that wants OAuth names others."""
    auth: httpx2.Auth
    pace: Pace

    @asynccontextmanager
    async def connected(self, complaint: Complaint) -> AsyncIterator[Streams]:
        """Its streams."""
        async with (
            bounded_client(self.allows, complaint, self.pace, headers=self.headers, auth=self.auth) as client,
            streamable_http_client(self.url, http_client=client) as streams,
        ):
            yield streams  # type: ignore[misc]


def bounded_client(
    allows: Callable[[str], None],
    complaint: Complaint,
    pace: Pace | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    auth: httpx2.Auth | None = None,
    read_s: float | None = None,
) -> httpx2.AsyncClient:
    """A client that asks allowed hosts alone. `allows`: see HttpServer; `read_s`: longest silence of an answer."""
    return httpx2.AsyncClient(
        headers=headers,
        auth=auth,
        timeout=httpx2.Timeout(HTTP_CONNECT_S, read=read_s),
        transport=_Bounded(httpx2.AsyncHTTPTransport(), complaint, pace or Pace(), allows),
        trust_env=False,
    )


class _Bounded(httpx2.AsyncBaseTransport):
    """Asks allowed hosts alone, and ends answers that are too long; streams of events have bounds of their own."""

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        complaint: Complaint,
        pace: Pace,
        allows: Callable[[str], None],
    ) -> None:
        self._inner, self._complaint, self._pace, self._allows = inner, complaint, pace, allows

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            self._allows(str(request.url))
        except ValueError as error:
            self._complaint.reason = str(error)
            raise httpx2.ConnectError(self._complaint.reason) from None
        request.headers["accept-encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            # It could be a thousand times as long as what is counted.
            await response.aclose()
            self._complaint.reason = "it sent a compressed answer, which it was not asked for"
            raise httpx2.ReadError(self._complaint.reason)
        is_endless = response.headers.get("content-type", "").startswith("text/event-stream")
        response.stream = _Counted(response.stream, self._complaint, self._pace, is_endless)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, inner: object, complaint: Complaint, pace: Pace, is_endless: bool) -> None:
        self._inner, self._complaint, self._pace, self._is_endless = inner, complaint, pace, is_endless

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        left = MESSAGE_BYTES_MAX
        async for piece in self._inner:  # type: ignore[attr-defined]
            await self._pace.taken(piece)
            left -= 0 if self._is_endless else len(piece)
            if left < 0:
                self._complaint.reason = f"it sent an answer of more than {MESSAGE_BYTES_MAX} bytes"
                raise httpx2.ReadError(self._complaint.reason)
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()  # type: ignore[attr-defined]

"""The output of a command as text in pieces: large enough to be worth a write, and never delayed for long.

Memory is bounded: a pipe holds 64 KiB, a reader twice READ_BYTES, a channel the end that it keeps. Back pressure: a
slow consumer slows down reading, and so the command. Source: architecture 3 (streaming bodies grow by at least 4 KB or
100 ms), 12.7.
"""

from __future__ import annotations

import asyncio
import codecs
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from msgspec import Struct, field

PIECE_BYTES: Final = 4096
"""Output is passed on at once when there is this much."""

PIECE_WAIT_S: Final = 0.1
"""Less output waits this long for more, in seconds."""

READ_BYTES: Final = 64 * 1024
"""Maximum output in one piece."""


HEAD_SHARE: Final = 0.5
"""Share of the kept output that is its beginning; the rest is its end."""


class Output(Struct):
    """One channel's text: its beginning as it comes, then its end, and how much was dropped between.

    Mutable: it counts, and holds at most the end. Invalid UTF-8, and NUL, which databases refuse, become U+FFFD.
    """

    bytes_max: int
    """Bytes that are kept, beginning and end together."""
    _head_left: int = 0
    _tail: deque[bytes] = field(default_factory=deque)
    _tail_bytes: int = 0
    left_out_bytes: int = 0
    """Bytes that were dropped between beginning and end."""
    _line_open: bool = False
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )

    def __post_init__(self) -> None:
        self._head_left = round(self.bytes_max * HEAD_SHARE)

    @property
    def is_cut(self) -> bool:
        return self.left_out_bytes > 0

    def take(self, data: bytes) -> str:
        """The text of the next bytes, as far as it belongs to the beginning."""
        head, rest = data[: self._head_left], data[self._head_left :]
        self._head_left -= len(head)
        if rest:
            self._keep_end(rest)
        return self._text(head)

    def end(self) -> str:
        """What follows the beginning at the end of the output: how much was dropped, and the end."""
        tail = b"".join(self._tail)
        self._tail.clear()
        if not self.is_cut:
            return self._text(tail, final=True)
        self._decoder.reset()
        line_end = "\n" if self._line_open else ""
        note = f"{line_end}[{self.left_out_bytes} bytes were left out here]\n"
        return note + self._text(tail[_torn(tail) :], final=True)

    def _keep_end(self, data: bytes) -> None:
        self._tail.append(data)
        self._tail_bytes += len(data)
        over = self._tail_bytes - (self.bytes_max - round(self.bytes_max * HEAD_SHARE))
        self._tail_bytes -= max(over, 0)
        self.left_out_bytes += max(over, 0)
        while over > 0:
            first = self._tail.popleft()
            if len(first) > over:
                self._tail.appendleft(first[over:])
            over -= len(first)

    def _text(self, data: bytes, *, final: bool = False) -> str:
        text = self._decoder.decode(data, final=final).replace("\0", "\ufffd")
        if text:
            self._line_open = not text.endswith("\n")
        return text


def _torn(data: bytes) -> int:
    """Number of leading bytes that continue a split character."""
    return next((index for index, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)


class OutputPipe(Struct):
    """The reading end of a pipe, connected to the event loop."""

    reader: asyncio.StreamReader
    transport: asyncio.ReadTransport


@asynccontextmanager
async def opened(descriptor: int) -> AsyncIterator[OutputPipe]:
    """A pipe being read. Its transport closes it once the event loop does not look at it any more.

    Closed before, its number may be that of another descriptor, which uvloop then refuses, or aborts at.
    """
    reader = asyncio.StreamReader(limit=READ_BYTES)
    file = os.fdopen(descriptor, "rb", buffering=0)
    try:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    except BaseException:
        file.close()
        raise
    try:
        yield OutputPipe(reader, transport)
    finally:
        transport.close()


class Stream(Struct):
    """One channel on its way from a pipe to its consumer. Mutable: it knows whether it waits for the pipe."""

    channel: int
    pipe: OutputPipe
    output: Output
    on_output: Callable[[int, str], Awaitable[None]]
    is_idle: bool = True

    async def pump(self) -> None:
        """Pass on the output until it ends.

        It is read no faster than it is consumed; once only its end is kept, as fast as it comes.
        """
        while True:
            self.is_idle = True
            data = await self._piece()
            self.is_idle = False
            if text := self.output.take(data) if data else self.output.end():
                await self.on_output(self.channel, text)
            if not data:
                return

    def close(self) -> None:
        """Read no more than what has arrived."""
        self.pipe.transport.close()

    async def _piece(self) -> bytes:
        """The next bytes, empty at the end: the first to come, and what follows shortly after if they are few."""
        data = await self.pipe.reader.read(READ_BYTES)
        if not data:
            return data
        try:
            async with asyncio.timeout(PIECE_WAIT_S):
                while len(data) < PIECE_BYTES and (more := await self.pipe.reader.read(READ_BYTES)):
                    data += more
        except TimeoutError:
            pass
        return data

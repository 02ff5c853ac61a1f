"""The output of a command as text in pieces: large enough to be worth a write, and never held back for long.

Source: architecture 3 (streaming bodies grow by at least 4 KB or 100 ms), 12.7.
"""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

PIECE_BYTES: Final = 4096
"""Output is passed on at once when there is so much of it."""

PIECE_WAIT_S: Final = 0.1
"""Less output waits so long for more, in seconds."""

READ_BYTES: Final = 64 * 1024
"""Most output in one piece."""


@dataclass(slots=True)
class Output:
    """One channel's text so far. Mutable: it knows how much may still be kept.

    Bytes that are no UTF-8, and NUL, which databases refuse, become U+FFFD.
    """

    bytes_left: int
    is_cut: bool = False
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )

    def text_of(self, data: bytes) -> str:
        """The text of the next bytes, no bytes meaning the end; empty once the channel is full."""
        if self.is_cut:
            return ""
        kept = data[: self.bytes_left]
        self.bytes_left -= len(kept)
        self.is_cut = len(kept) < len(data)
        text = self._decoder.decode(kept, final=not data or self.is_cut).replace("\0", "\ufffd")
        return f"{text}\n[the rest of the output was cut]\n" if self.is_cut else text


@dataclass(slots=True)
class Pipe:
    """The reading end of a pipe, connected to the event loop."""

    reader: asyncio.StreamReader
    transport: asyncio.ReadTransport


@asynccontextmanager
async def opened(descriptor: int) -> AsyncIterator[Pipe]:
    """A pipe that is read; it is closed at the end of the block, in any case."""
    reader = asyncio.StreamReader(limit=READ_BYTES)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
        try:
            yield Pipe(reader, transport)
        finally:
            transport.close()


@dataclass(slots=True)
class Stream:
    """One channel on its way from a pipe to whoever keeps it. Mutable: it knows whether it waits for the pipe."""

    channel: int
    pipe: Pipe
    output: Output
    on_output: Callable[[int, str], Awaitable[None]]
    is_idle: bool = True

    async def pump(self) -> None:
        """Pass on what the pipe brings until it ends; what is over the limit is read and dropped."""
        while True:
            self.is_idle = True
            data = await self._piece()
            self.is_idle = False
            if text := self.output.text_of(data):
                await self.on_output(self.channel, text)
            if not data:
                return

    def close(self) -> None:
        """Read no more than what has arrived."""
        self.pipe.transport.close()

    async def _piece(self) -> bytes:
        """The next bytes, empty at the end: the first that come, and what follows shortly after if they are few."""
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

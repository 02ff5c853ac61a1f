"""A bounded buffer between the producer that reads a reply and the caller who consumes it.

The producer adds deltas without waiting while there is room. The consumer is woken for a full batch and for the end,
and otherwise once each flush interval. So a delta costs a list append, not a task switch.
Source: architecture 12.6, 12.10.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from turnwright_core.chat.deltas import Delta, SetUsage
from turnwright_provider.domain.coalesce import DeltaBuffer
from turnwright_provider.domain.model_call import Finish, ReplyPart


class Outbox:
    """Bounded by `bytes_max`: a slow caller slows down reading from the vendor. `clock` is monotonic, in seconds."""

    def __init__(self, buffer: DeltaBuffer, bytes_max: int, clock: Callable[[], float]) -> None:
        self._buffer = buffer
        self._bytes_max = bytes_max
        self._clock = clock
        self._finish: Finish | None = None
        self._awake = asyncio.Event()
        self._urgent = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = False

    def add(self, delta: Delta) -> bool:
        """Add a delta; returns whether there is room for more."""
        self._buffer.add(delta)
        self._awake.set()
        if self._buffer.is_full():
            self._urgent.set()
        return self._buffer.size_bytes < self._bytes_max

    async def wait_for_room(self) -> None:
        """Wait while the caller is far behind."""
        while self._buffer.size_bytes >= self._bytes_max:
            self._room.clear()
            await self._room.wait()

    def end(self, finish: Finish) -> None:
        """The end, after all deltas; it is sent at once."""
        self._finish = finish
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        self._awake.set()
        self._urgent.set()

    async def take(self) -> Sequence[ReplyPart]:
        """What was added, in order, once it is due; nothing once it is closed and empty."""
        while self._buffer or self._finish or not self._closed:
            await self._awake.wait()
            await self._wait_for_flush()
            if not self._closed:
                self._awake.clear()
                self._urgent.clear()
            finish, self._finish = self._finish, None
            parts: list[ReplyPart] = [*self._buffer.take(self._clock())] if self._buffer else []
            self._room.set()
            if finish:
                # The end says what was used, too.
                parts = [part for part in parts if not (isinstance(part, SetUsage) and finish.usage)]
                parts.append(finish)
            if parts:
                return parts
        return ()

    async def _wait_for_flush(self) -> None:
        """Wait until the flush interval is over or something urgent comes."""
        wait_s = self._buffer.wait_s(self._clock())
        if wait_s > 0 and not self._urgent.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._urgent.wait()

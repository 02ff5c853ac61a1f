"""A bounded buffer between the producer that reads a reply and the caller who consumes it; it joins deltas.

The producer adds deltas without waiting while there is room. The consumer is woken for a full batch and for the end,
and otherwise once each flush interval, so a delta costs a list append, not a task switch. The order of content and
reasoning is kept; of tool calls and usage only the latest is kept. Source: architecture 12.6, 12.10; research/perf.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final

from msgspec import Struct
from turnwright_values.provider import Finish

from turnwright_core.chat.deltas import AppendContent, AppendReasoning, Delta, SetToolCalls, SetUsage
from turnwright_provider.domain.model_call import ReplyPart

TEXT_CHARS_MAX: Final = 64 * 1024
"""Longest text of one delta, in code points; longer ones are split (at most 256 KB, architecture 12.4)."""


class FlowControl(Struct, frozen=True):
    """Flow control of a reply: a batch goes after `flush_s` seconds, or once it has `flush_bytes` bytes of text.

    `outbox_bytes_max`: how far the caller may fall behind, which then slows down reading from the vendor.
    """

    flush_s: float
    flush_bytes: int
    outbox_bytes_max: int = 256 * 1024


class Outbox:
    """The outbox of one reply, whose beginning was sent just before. `clock` is monotonic, in seconds."""

    def __init__(self, pace: FlowControl, clock: Callable[[], float]) -> None:
        self._pace = pace
        self._clock = clock
        self._texts: list[AppendContent | AppendReasoning] = []
        self._latest: dict[type[Delta], Delta] = {}
        self._blocks: list[Delta] = []
        self._bytes = 0
        self._due_s = clock() + pace.flush_s
        self._finish: Finish | None = None
        self._is_closed = False
        self._woken = asyncio.Event()
        self._room = asyncio.Event()

    def add(self, delta: Delta) -> bool:
        """Add a delta; returns whether there is room for more."""
        if not self._has_deltas:
            self._woken.set()
        if isinstance(delta, AppendContent | AppendReasoning):
            self._texts.append(delta)
            self._bytes += len(delta.text) if delta.text.isascii() else len(delta.text.encode())
        elif isinstance(delta, SetToolCalls | SetUsage):
            self._latest[type(delta)] = delta
        else:
            self._blocks.append(delta)
            self._bytes += 1
        if self._bytes >= self._pace.flush_bytes:
            self._woken.set()
        return self._bytes < self._pace.outbox_bytes_max

    @property
    def _has_deltas(self) -> bool:
        return bool(self._texts or self._blocks or self._latest)

    async def wait_for_room(self) -> None:
        """Wait while the caller is far behind."""
        while self._bytes >= self._pace.outbox_bytes_max:
            self._room.clear()
            await self._room.wait()

    def end(self, finish: Finish) -> None:
        """The end, after all deltas; it is sent at once."""
        self._finish = finish
        self._woken.set()

    def close(self) -> None:
        self._is_closed = True
        self._woken.set()

    async def take(self) -> Sequence[ReplyPart]:
        """What was added, in order, once it is due; nothing once it is closed and empty."""
        while True:
            self._woken.clear()
            if self._is_closed or self._finish or self._bytes >= self._pace.flush_bytes:
                return self._batch()
            if not self._has_deltas:
                await self._woken.wait()
                continue
            if (wait_s := self._due_s - self._clock()) <= 0:
                return self._batch()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()

    def _batch(self) -> Sequence[ReplyPart]:
        """What is there, joined; starts the next interval."""
        parts: list[ReplyPart] = []
        for kind, run in groupby(self._texts, type):
            text = "".join(delta.text for delta in run)
            parts += [kind(text[i : i + TEXT_CHARS_MAX]) for i in range(0, len(text), TEXT_CHARS_MAX)]
        parts += self._blocks
        if self._finish and self._finish.usage:
            # The end says what was used, too.
            self._latest.pop(SetUsage, None)
        parts += [self._latest[kind] for kind in (SetToolCalls, SetUsage) if kind in self._latest]
        if self._finish:
            parts.append(self._finish)
        self._texts, self._blocks, self._latest, self._bytes, self._finish = [], [], {}, 0, None
        self._due_s = self._clock() + self._pace.flush_s
        self._room.set()
        return parts

"""LRU cache of rendered rows by run, with one caller at a time for each run.

Rows that are not used for two minutes are dropped: most runs have ended by then, and the others are read again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

from msgspec import Struct, field
from turnwright_values.types import Cursor

from turnwright_assembler.ports import ViewPart
from turnwright_core.errors import Reason, fault


class CachedRows(Protocol):
    """Rows made from a run's entries as of `cursor`, cached between turns."""

    cursor: Cursor | None
    size_bytes: int

    def apply(self, part: ViewPart) -> None:
        """Apply added, changed and removed entries."""


RunKey = tuple[str, str]

IDLE_S: Final = 120.0
"""Seconds after which unused rows are dropped."""

CALLS_PER_RUN_MAX: Final = 16
"""Queue limit of calls for one run: a run has one turn at a time, the others are clients that inspect its packets."""


class BorrowedRows(Struct):
    """The rows of a run during one call; None if nothing is cached."""

    rows: CachedRows | None


class _KeyedLock(Struct):
    """The queue of calls for one run, including the current one."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    calls: int = 0


class RunCache:
    """Rows by (project, run), limited in bytes over all runs."""

    def __init__(self, bytes_max: int, calls_per_run_max: int = CALLS_PER_RUN_MAX, idle_s: float = IDLE_S) -> None:
        """Keep at most `bytes_max`, for `idle_s` seconds, and queue at most this many calls for one run."""
        self._idle_s = idle_s
        self._timer: asyncio.TimerHandle | None = None
        self._bytes_max = bytes_max
        self._calls_per_run_max = calls_per_run_max
        self._kept: OrderedDict[RunKey, tuple[float, CachedRows]] = OrderedDict()
        """Rows with the time of their last use, in that order."""
        self._lines: dict[RunKey, _KeyedLock] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    @asynccontextmanager
    async def hold(self, key: RunKey) -> AsyncIterator[BorrowedRows]:
        """The rows of a run for exclusive use. They are kept only if the block ends without an exception.

        Raises ExhaustedError if too many calls for the run are waiting.
        """
        line = self._lines.setdefault(key, _KeyedLock())
        if line.calls >= self._calls_per_run_max:
            raise fault(
                Reason.QUEUE_FULL,
                "Too many packets of this run are being assembled at once; retry when one is done.",
                queue="assemble",
                limit=self._calls_per_run_max,
            )
        line.calls += 1
        try:
            async with line.lock:
                held = BorrowedRows(self._take(key))
                yield held
                self._keep(key, held.rows)
        finally:
            line.calls -= 1
            if not line.calls:
                del self._lines[key]

    def _take(self, key: RunKey) -> CachedRows | None:
        _, rows = self._kept.pop(key, (0.0, None))
        if rows:
            self.size_bytes -= rows.size_bytes
        return rows

    def _keep(self, key: RunKey, rows: CachedRows | None) -> None:
        if rows is None:
            return
        loop = asyncio.get_running_loop()
        self._kept[key] = loop.time(), rows
        self.size_bytes += rows.size_bytes
        while self.size_bytes > self._bytes_max:
            self._forget_oldest()
        if self._kept and self._timer is None:
            self._timer = loop.call_later(self._idle_s, self._forget_idle)

    def _forget_oldest(self) -> None:
        _, (_, rows) = self._kept.popitem(last=False)
        self.size_bytes -= rows.size_bytes

    def _forget_idle(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._kept:
            due_s = next(iter(self._kept.values()))[0] + self._idle_s
            if due_s > loop.time():
                self._timer = loop.call_at(due_s, self._forget_idle)
                return
            self._forget_oldest()

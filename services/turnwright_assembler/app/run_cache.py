"""Rendered rows of many runs: one caller at a time for each run, the least recently used forgotten first."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from msgspec import Struct, field

from turnwright_assembler.app.run_rows import RunRows
from turnwright_core.errors import Reason, fault

RunKey = tuple[str, str]

CALLS_PER_RUN_MAX: Final = 16
"""Calls for one run that may queue: a run has one turn at a time, the rest are clients that look at its packets."""


class BorrowedRows(Struct):
    """The rows of a run while one call has them; None where nothing is kept."""

    rows: RunRows | None


class _Line(Struct):
    """Calls for one run, the one that works included."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    calls: int = 0


class RunCache:
    """Rows by (project, run), bounded by bytes over all runs."""

    def __init__(self, bytes_max: int, calls_per_run_max: int = CALLS_PER_RUN_MAX) -> None:
        """Keep at most `bytes_max`, and let so many calls for one run wait for each other."""
        self._bytes_max = bytes_max
        self._calls_per_run_max = calls_per_run_max
        self._kept: OrderedDict[RunKey, RunRows] = OrderedDict()
        self._lines: dict[RunKey, _Line] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    @asynccontextmanager
    async def hold(self, key: RunKey) -> AsyncIterator[BorrowedRows]:
        """The rows of a run for one caller alone. They are kept again only when the block ends without an exception.

        Raises ExhaustedError when too many calls for the run are waiting.
        """
        line = self._lines.setdefault(key, _Line())
        if line.calls >= self._calls_per_run_max:
            raise fault(
                Reason.QUEUE_FULL,
                "Too many packets of this run are being assembled at once; call again when one is done.",
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

    def _take(self, key: RunKey) -> RunRows | None:
        rows = self._kept.pop(key, None)
        if rows:
            self.size_bytes -= rows.size_bytes
        return rows

    def _keep(self, key: RunKey, rows: RunRows | None) -> None:
        if rows is None:
            return
        self._kept[key] = rows
        self.size_bytes += rows.size_bytes
        while self.size_bytes > self._bytes_max:
            _, oldest = self._kept.popitem(last=False)
            self.size_bytes -= oldest.size_bytes

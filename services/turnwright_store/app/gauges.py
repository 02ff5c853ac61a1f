"""Gauges of the backlog, for telemetry. The database is read only when metrics are collected."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final

from turnwright_core.errors import TurnwrightError
from turnwright_kit.telemetry import observe
from turnwright_kit.telemetry_names import LOOPS_QUEUED, PROPOSALS_WAITING, QUEUE_AGE
from turnwright_store.ports import Database
from turnwright_store.sql.gauges import Backlog, read_backlog

WAIT_S: Final = 2.0
"""Seconds that a collection of metrics waits for the database. If that is too short, these gauges have no values."""

AGE_S_MAX: Final = 1.0
"""How old a reading may be, in seconds: one serves all gauges of a collection."""


class BacklogGauges:
    """Reads the backlog for threads that collect metrics.

    Each store of a deployment has the same figures: take one of them, or their maximum.
    """

    def __init__(self, database: Database, now_ms: Callable[[], int]) -> None:
        """Register the gauges. Call it in the event loop of the database."""
        self._database, self._now_ms = database, now_ms
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._latest: Backlog | None = None
        self._read_s = -AGE_S_MAX
        self._is_closed = False
        observe(LOOPS_QUEUED, lambda: self._value(lambda found: found.loops))
        observe(PROPOSALS_WAITING, lambda: self._value(lambda found: found.proposals))
        observe(QUEUE_AGE, lambda: self._value(self._age_s))

    def close(self) -> None:
        """Stop reading; to be called before the database is closed."""
        self._is_closed = True

    def _age_s(self, found: Backlog) -> float:
        return max(0, self._now_ms() - found.oldest_ms) / 1000 if found.oldest_ms else 0.0

    def _value(self, of: Callable[[Backlog], float]) -> float | None:
        with self._lock:
            if time.monotonic() - self._read_s > AGE_S_MAX:
                self._latest = None if self._is_closed else self._read()
                self._read_s = time.monotonic()
            return None if self._latest is None else of(self._latest)

    def _read(self) -> Backlog | None:
        reading = asyncio.run_coroutine_threadsafe(self._database.read(read_backlog), self._loop)
        try:
            return reading.result(WAIT_S)
        except (TurnwrightError, TimeoutError):
            reading.cancel()
            return None

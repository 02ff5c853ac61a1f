"""Gauges of what waits in the store, for telemetry. Read at intervals, because another thread collects them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from turnwright_core.kit.telemetry import observe
from turnwright_core.kit.telemetry_names import LOOPS_QUEUED, PROPOSALS_WAITING, QUEUE_AGE
from turnwright_store.app.maintenance import Chore
from turnwright_store.ports import Database
from turnwright_store.sql.gauges import Backlog, read_backlog

EVERY_S: Final = 5.0
"""Seconds between two readings."""


def gauges(database: Database, now_ms: Callable[[], int]) -> Chore:
    """The chore that reads them. Each store of a deployment tells the same figures: take one, or the largest."""
    latest = Backlog()

    def age_s() -> float:
        return max(0, now_ms() - latest.oldest_ms) / 1000 if latest.oldest_ms else 0.0

    observe(LOOPS_QUEUED, lambda: latest.loops)
    observe(PROPOSALS_WAITING, lambda: latest.proposals)
    observe(QUEUE_AGE, age_s)

    async def read() -> bool:
        nonlocal latest
        latest = await database.read(read_backlog)
        return False

    return Chore("gauges", EVERY_S, read)

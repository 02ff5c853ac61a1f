"""A cache of plans, read once for all watchers that need them at the same time.

It is bounded by bytes for the whole executor; an evicted plan is read again. Each is cached under the moment for which
it was requested, and valid for requests for that moment or an earlier one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final
from weakref import WeakValueDictionary

from msgspec import Struct
from turnwright.types.v1 import plan_pb2

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.limits import PLAN_BODY_BYTES_MAX
from turnwright_core.plans.legacy import legacy_items
from turnwright_core.plans.plan import Plan, PlanKind
from turnwright_core.wire.plans import item_to_pb, plan_to_pb
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.endings import AWAY, GONE
from turnwright_executor.ports.ledger import Ledger

KEPT_BYTES_MAX: Final = 4 * 1024 * 1024
"""Size of the cache in bytes."""

HEADS_MAX: Final = 10_000
"""Maximum number of plan entries that are read to determine their order."""


class PlanMoment(Struct, frozen=True):
    """A position in a run's events."""

    epoch: str
    seq: int


class ReadPlan(Struct, frozen=True):
    """A plan, and its items in the single list."""

    plan: plan_pb2.Plan
    items: tuple[plan_pb2.PlanItem, ...]
    at: PlanMoment

    @property
    def content(self) -> tuple[int, int]:
        """Version and number of deltas: a version number is never reused, and a version never loses a delta."""
        return self.plan.version, self.plan.deltas[-1].sequence if self.plan.deltas else 0

    @property
    def size(self) -> int:
        return self.plan.ByteSize() + sum(item.ByteSize() for item in self.items)


class PlanCache:
    """Reads plans through the cache."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: OrderedDict[tuple[RunAddress, str], ReadPlan] = OrderedDict()
        self._bytes = 0
        self._lines: WeakValueDictionary[RunAddress, asyncio.Lock] = WeakValueDictionary()
        """Those who want a plan of one run at once: the first reads it."""

    async def plan(self, address: RunAddress, plan_id: str, at: PlanMoment) -> ReadPlan | None:
        """A plan as of a moment or later; None if there is none. Raises TurnwrightError."""
        line = self._lines.setdefault(address, asyncio.Lock())
        async with line:
            kept = self._kept.get((address, plan_id))
            if kept and kept.at.epoch == at.epoch and kept.at.seq >= at.seq:
                self._kept.move_to_end((address, plan_id))
                return kept
            try:
                plan = await self._ledger.get_plan(address, plan_id)
            except TurnwrightError as error:
                if error.reason is not Reason.ENTRY_NOT_FOUND:
                    raise
                self._forget((address, plan_id))
                return None
            text = await self._file_text(address, plan)
            read = ReadPlan(plan_to_pb(plan), tuple(map(item_to_pb, legacy_items(plan, text))), at)
            self._keep((address, plan_id), read)
            return read

    async def positions(self, address: RunAddress) -> list[tuple[str, int]]:
        """The paths and positions of the entries of a run's plans. Raises TurnwrightError."""
        found = await self._ledger.find_entries(address, "plan://*", "", HEADS_MAX, bodies=False)
        return [(entry.path, entry.position) for entry in found]

    async def _file_text(self, address: RunAddress, plan: Plan) -> str:
        if plan.kind is not PlanKind.FILE:
            return ""
        try:
            return await self._ledger.read_body(address, plan.body, 0, PLAN_BODY_BYTES_MAX)
        except TurnwrightError as error:
            if error.reason in (*AWAY, *GONE):
                raise
            # A plan may name what it likes: a file that is not there yet, or none at all.
            return ""

    def _keep(self, key: tuple[RunAddress, str], read: ReadPlan) -> None:
        self._forget(key)
        self._kept[key] = read
        self._bytes += read.size
        while self._bytes > KEPT_BYTES_MAX:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: tuple[RunAddress, str]) -> None:
        if before := self._kept.pop(key, None):
            self._bytes -= before.size

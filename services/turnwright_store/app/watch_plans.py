"""The watch over the plans of a run: a snapshot of all, then those that change.

A watcher is woken by each commit of the run, and compares the rows of its plans with those that it has sent: what has
not changed is not read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from sqlalchemy import Connection

from turnwright_core.batching import split_by_weight
from turnwright_core.errors import run_not_found
from turnwright_core.plans.plan import Plan
from turnwright_store.app.plans import PlanMark, marked_plans, plan_weight
from turnwright_store.domain.names import RunRef
from turnwright_store.ports import Database, Subscription
from turnwright_store.sql.runs import get_run_head

PAUSE_S: Final = 0.05
"""Minimum seconds between two reads: what happens in between is combined."""


class PlansChange(Struct, frozen=True):
    """One message of a watch; an empty one is a heartbeat."""

    plans: Sequence[Plan] = ()
    removed: str = ""
    """The id of a plan."""
    part: int | None = None
    """Number of this part of the snapshot; None: a change."""
    is_last: bool = False


class PlansWatch(Struct):
    """What a watcher of a run was sent."""

    database: Database
    subscription: Subscription
    address: RunRef
    run_id: int
    sent: dict[str, PlanMark] | None = None
    pause_s: float = PAUSE_S

    def heartbeat(self) -> PlansChange:
        return PlansChange()

    async def read(self, *, is_woken: bool, is_due: bool) -> AsyncIterator[PlansChange]:  # noqa: ARG002 - as others
        """The snapshot at first, then differences to what was sent. Raises RUN_NOT_FOUND."""
        if not is_woken:
            return
        before = self.sent
        marks, plans = await self.database.read(self._news)
        self.sent = marks
        if before is None:
            parts = list(split_by_weight(plans, plan_weight)) or [[]]
            for number, part in enumerate(parts, 1):
                yield PlansChange(part, part=number - 1, is_last=number == len(parts))
            return
        for plan_id, (position, *_) in before.items():
            if plan_id not in marks or marks[plan_id][0] != position:
                yield PlansChange(removed=plan_id)
        for plan in plans:
            yield PlansChange([plan])

    def _news(self, connection: Connection) -> tuple[dict[str, PlanMark], list[Plan]]:
        """The plans as they are, and those that the watcher does not have."""
        run = get_run_head(connection, self.address.project, self.address.run)
        if run.id != self.run_id:
            # The alias belongs to another run now.
            raise run_not_found(self.address.project, self.address.run)
        return marked_plans(connection, run, self.sent or {})


async def watch_plans(database: Database, address: RunRef) -> PlansWatch:
    """Begin a watch of the plans of a run. Raises RUN_NOT_FOUND."""
    run = await database.read(partial(get_run_head, project=address.project, alias=address.run))
    return PlansWatch(database, database.subscribe((run.scope,)), address, run.id)

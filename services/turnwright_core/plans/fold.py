"""Which plans a run has, from the entries that its plans are, whatever the order in which these change.

`plan://{id}` is a plan, `plan://{id}/v{n}/{k}` an addition to it, `plan://{id}/v{n}` a version that is kept. A plan
that is set again keeps its position in the timeline; one that was removed before gets another. So the positions are the
order in which the run first saw the plans that it has (AP25).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct, field

from turnwright_core.plans.plan import SCHEME

_PREFIX: Final = f"{SCHEME}://"


class PlanMove(Struct, frozen=True):
    """A plan is another one than before, or is gone."""

    plan_id: str
    is_removed: bool = False


class PlanHeads(Struct):
    """The plans of a run, as far as the changes of entries told them."""

    positions: dict[str, int] = field(default_factory=dict)
    """Of each plan, by its identity."""

    def load(self, entries: Iterable[tuple[str, int]]) -> None:
        """Begin with all entries, each a path and a position."""
        self.positions = {}
        for path, position in entries:
            self.changed(path, position, is_new=True)

    def changed(self, path: str, position: int, *, is_new: bool) -> tuple[PlanMove, ...]:
        """Which plans an entry moves that appeared or changed."""
        plan_id, below = _parsed(path)
        if not plan_id:
            return ()
        if below:
            # What was added never changes; it is archived with the version that it belongs to.
            return (PlanMove(plan_id),) if "/" in below and is_new else ()
        before, self.positions[plan_id] = self.positions.get(plan_id, position), position
        moved = PlanMove(plan_id)
        return (moved,) if before == position else (PlanMove(plan_id, is_removed=True), moved)

    def left(self, path: str) -> tuple[PlanMove, ...]:
        """Which plans an entry moves that left the view."""
        plan_id, below = _parsed(path)
        if not plan_id:
            return ()
        if below:
            return (PlanMove(plan_id),) if "/" in below and plan_id in self.positions else ()
        self.positions.pop(plan_id, None)
        return (PlanMove(plan_id, is_removed=True),)

    def in_order(self) -> list[str]:
        """The identities of the plans, first seen first."""
        return sorted(self.positions, key=self.positions.__getitem__)


def _parsed(path: str) -> tuple[str, str]:
    """The plan that an entry belongs to, and what stands below it; empty where there is none."""
    if not path.startswith(_PREFIX):
        return "", ""
    plan_id, _, below = path.removeprefix(_PREFIX).partition("/")
    return plan_id, below

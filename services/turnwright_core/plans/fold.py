"""The plans of a run, folded from changes of its `plan://` entries in any order.

`plan://{id}` is a plan, `plan://{id}/v{n}/{k}` a delta of it, `plan://{id}/v{n}` an earlier version. A plan that is set
again keeps its position in the timeline; one that was removed before gets a new one. So the positions are the order in
which the existing plans first appeared (AP25).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from turnwright_core.plans.plan import part_of


class PlanMove(Struct, frozen=True):
    """A plan has changed or was removed."""

    plan_id: str
    is_removed: bool = False


class PlanHeads(Struct):
    """The plans of a run, according to the changes of entries so far."""

    positions: dict[str, int] = field(default_factory=dict)
    """Position of each plan, by id."""

    def load(self, entries: Iterable[tuple[str, int]]) -> None:
        """Start with all entries, given as paths and positions."""
        self.positions = {}
        for path, position in entries:
            self.changed(path, position, is_new=True)

    def changed(self, path: str, position: int, *, is_new: bool) -> tuple[PlanMove, ...]:
        """The plans affected by an entry that is new or has changed."""
        part = part_of(path)
        moved = PlanMove(part.plan_id)
        if part.version:
            # A delta never changes; it is archived with the version that it belongs to.
            return (moved,) if part.sequence and is_new else ()
        if not part.plan_id:
            return ()
        before, self.positions[part.plan_id] = self.positions.get(part.plan_id, position), position
        return (moved,) if before == position else (PlanMove(part.plan_id, is_removed=True), moved)

    def left(self, path: str) -> tuple[PlanMove, ...]:
        """The plans affected by an entry that left the view."""
        part = part_of(path)
        if part.version:
            return (PlanMove(part.plan_id),) if part.sequence and part.plan_id in self.positions else ()
        if not part.plan_id:
            return ()
        self.positions.pop(part.plan_id, None)
        return (PlanMove(part.plan_id, is_removed=True),)

    def in_order(self) -> list[str]:
        """The ids of the plans, in the order in which they first appeared."""
        return sorted(self.positions, key=self.positions.__getitem__)

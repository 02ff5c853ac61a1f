"""Which plans a run has, from the entries that its plans are, whatever the order in which these change.

`plan://{id}` is a plan, `plan://{id}/v{n}/{k}` a delta of it, `plan://{id}/v{n}` a version that is kept. A plan
that is set again keeps its position in the timeline; one that was removed before gets another. So the positions are the
order in which the run first saw the plans that it has (AP25).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from turnwright_core.plans.plan import part_of


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
        """Which plans an entry moves that left the view."""
        part = part_of(path)
        if part.version:
            return (PlanMove(part.plan_id),) if part.sequence and part.plan_id in self.positions else ()
        if not part.plan_id:
            return ()
        self.positions.pop(part.plan_id, None)
        return (PlanMove(part.plan_id, is_removed=True),)

    def in_order(self) -> list[str]:
        """The identities of the plans, first seen first."""
        return sorted(self.positions, key=self.positions.__getitem__)

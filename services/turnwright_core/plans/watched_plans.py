"""The state of a watcher of plans: each plan is replaced by its id. Source: rows AP20-AP26."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from msgspec import Struct, field

P = TypeVar("P")
L = TypeVar("L")


class WatchedPlans(Struct, Generic[P, L]):
    """Plans by id, and the single list for clients that support only one plan.

    Ids are compared exactly. Plans are ordered by their first appearance; one that was removed and appears again comes
    last.
    """

    plans: dict[str, P] = field(default_factory=dict)
    legacy: L | None = None
    """Independent of the plans by id (AP26)."""

    def update(self, plan_id: str, plan: P) -> None:
        self.plans[plan_id] = plan

    def remove(self, plan_id: str) -> None:
        self.plans.pop(plan_id, None)

    def replace(self, plans: Iterable[tuple[str, P]], legacy: L | None) -> None:
        self.plans, self.legacy = dict(plans), legacy

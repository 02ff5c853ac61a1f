"""What somebody holds who is told of plans: each replaced whole by its identity. Source: rows AP20-AP26."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from msgspec import Struct, field

P = TypeVar("P")
L = TypeVar("L")


class HeldPlans(Struct, Generic[P, L]):
    """Plans of any kind by their identities, and the one list of those who do not tell plans apart.

    Identities are compared exactly. Plans stand in the order in which they were first told; one that was removed and
    is told again comes last.
    """

    plans: dict[str, P] = field(default_factory=dict)
    legacy: L | None = None
    """A slot of its own: neither does a plan touch it, nor it a plan (AP26)."""

    def update(self, plan_id: str, plan: P) -> None:
        """A plan is this one now; nothing stays of the one before, whatever its kind."""
        self.plans[plan_id] = plan

    def remove(self, plan_id: str) -> None:
        """A plan is gone. One that nobody knows changes nothing."""
        self.plans.pop(plan_id, None)

    def replace(self, plans: Iterable[tuple[str, P]], legacy: L | None) -> None:
        """All is as it is told here."""
        self.plans, self.legacy = dict(plans), legacy

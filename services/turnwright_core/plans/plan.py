"""Plans: documents that say what a run intends to do. Source: architecture 9; rows RP01-RP08, AP20-AP26."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from msgspec import Struct, field
from turnwright_values.types import PlanDelta, PlanKind

from turnwright_core.limits import NAME_CHARS_MAX

MAIN: Final = "main"
"""The default plan."""

SCHEME: Final = "plan"
"""The scheme of plan entries."""

PLAN_ID: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{NAME_CHARS_MAX}}}")
"""A valid plan_id."""

_PART: Final = re.compile(rf"{SCHEME}://([^/]+)(?:/v([0-9]+)(?:/([0-9]+))?)?")


class Plan(Struct, frozen=True):
    """One version of a plan. `version` is 0 until it is stored. The items of a message are the body here."""

    plan_id: str
    kind: PlanKind
    body: str
    version: int = 0
    mode: str = ""
    deltas: tuple[PlanDelta, ...] = ()
    update_ms: int = 0


class PlanPart(Struct, frozen=True):
    """The role of an entry in a plan: the plan itself, an earlier version, or with a sequence a delta."""

    plan_id: str = ""
    """Empty: the entry does not belong to a plan."""
    version: int = 0
    sequence: int = 0


def part_of(path: str) -> PlanPart:
    found = _PART.fullmatch(path)
    return PlanPart(found[1], int(found[2] or 0), int(found[3] or 0)) if found else PlanPart()


def plan_path(plan_id: str) -> str:
    return f"{SCHEME}://{plan_id}"


def version_path(plan_id: str, version: int) -> str:
    """Path under which a version is kept after it was replaced or removed."""
    return f"{plan_path(plan_id)}/v{version}"


def delta_path(plan_id: str, version: int, sequence: int) -> str:
    return f"{version_path(plan_id, version)}/{sequence}"


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

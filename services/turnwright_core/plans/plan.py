"""Plans: documents that say what a run intends to do. Source: architecture 9; rows RP01-RP08."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct
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

"""The event of each operation on a plan. Versions are never used again, so a slug of them is nobody else's."""

from __future__ import annotations

from typing import Final

from turnwright_core.events import RunEvent, Subkind
from turnwright_core.plans import PlanKind

_SOURCE: Final = "plan"


def changed(plan_id: str, version: int, kind: PlanKind) -> RunEvent:
    """A plan was set."""
    sentence = f"The plan {plan_id} is now version {version}."
    return _notice(plan_id, version, kind, "set", sentence, f"{plan_id}-v{version}")


def removed(plan_id: str, version: int, kind: PlanKind) -> RunEvent:
    """A plan was taken away in its latest version."""
    sentence = f"The plan {plan_id} was removed; version {version} was the latest."
    return _notice(plan_id, version, kind, "removed", sentence, f"{plan_id}-v{version}-removed")


def _notice(plan_id: str, version: int, kind: PlanKind, change: str, sentence: str, slug: str) -> RunEvent:
    payload = {"plan_id": plan_id, "version": version, "kind": kind.name.lower(), "change": change}
    return RunEvent(Subkind.SYSTEM_NOTICE, _SOURCE, payload, sentence, slug)


def extended(plan_id: str, version: int, sequence: int) -> RunEvent:
    """Something was added to a plan."""
    return RunEvent(
        Subkind.PLAN_DELTA,
        _SOURCE,
        {"plan_id": plan_id, "version": version, "sequence": sequence},
        f"Something was added to the plan {plan_id}, version {version}: its delta {sequence}.",
        f"{plan_id}-v{version}-{sequence}",
    )

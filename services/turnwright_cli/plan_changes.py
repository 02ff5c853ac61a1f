"""Changes of a run's plans during a followed loop, one line each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from turnwright.types.v1 import plan_pb2

from turnwright_cli.plain import safe_line
from turnwright_cli.plan_words import item_line, progress_words
from turnwright_core.plans.plan_diff import count_changed_lines, diff_items

MOVED_MAX: Final = 10
"""Maximum number of changed items that a terminal lists."""
CHARS_MAX: Final = 100
"""Maximum length of an item or a delta on a terminal, in characters."""


class PlanChanges:
    """The plans as last shown. In a pipe (`whole`) lines are not truncated and no item is left out."""

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._plans: dict[str, plan_pb2.Plan | None] = {}
        self._knows_all = False

    def progress(self) -> str:
        """How far the plan is that was changed last; empty if none has open items."""
        plan = self.latest()
        return progress_words(plan) if plan else ""

    def latest(self) -> plan_pb2.Plan | None:
        """The plan with open items that was changed last."""
        return next((plan for plan in reversed(self._plans.values()) if plan and progress_words(plan)), None)

    def lacks(self, plan: plan_pb2.Plan) -> bool:
        """Whether the previous version is needed to show what changed."""
        return not self._knows_all and plan.plan_id not in self._plans and plan.version > 1 and not plan.deltas

    def knew(self, plan: plan_pb2.Plan) -> None:
        """The previous version of a plan that was not seen yet."""
        self._plans.setdefault(plan.plan_id, plan)

    def snapshot(self, plans: Iterable[plan_pb2.Plan]) -> Iterator[str]:
        """All plans. The first snapshot is the starting point; in later ones, known plans may have changed."""
        now = {plan.plan_id: plan for plan in plans}
        for plan_id in [plan_id for plan_id, plan in self._plans.items() if plan and plan_id not in now]:
            yield from self.removed(plan_id)
        for plan_id, plan in now.items():
            if self._knows_all or plan_id in self._plans:
                yield from self.updated(plan)
            else:
                self._plans[plan_id] = plan
        self._knows_all = True

    def removed(self, plan_id: str) -> Iterator[str]:
        self._plans[plan_id] = None
        yield f"plan {safe_line(plan_id)}: removed"

    def updated(self, plan: plan_pb2.Plan) -> Iterator[str]:
        is_known = plan.plan_id in self._plans or self._knows_all
        before = self._plans.get(plan.plan_id)
        self._plans[plan.plan_id] = plan
        same = before is not None and before.version == plan.version
        added = list(plan.deltas)
        if not same and not (plan.deltas and not is_known):
            yield from self._replaced(before, plan)
        elif before is None:
            # It was not shown yet: the latest delta is the change.
            added = added[-1:]
        else:
            added = [
                delta for delta in added if delta.sequence > max((one.sequence for one in before.deltas), default=0)
            ]
        for delta in added:
            yield f"plan {safe_line(plan.plan_id)}, added: {self._cut(delta.text)}"

    def _replaced(self, before: plan_pb2.Plan | None, plan: plan_pb2.Plan) -> Iterator[str]:
        """A new version: the items that changed if it is still the same plan, else its size."""
        name = f"plan {safe_line(plan.plan_id)}"
        if before is not None and before.kind == plan.kind == plan_pb2.PLAN_KIND_ITEMS:
            moved = diff_items(before.items, plan.items)
            if moved and (self._whole or len(moved) <= MOVED_MAX):
                for one in moved:
                    line = self._cut(item_line(one.item))
                    yield f"{name}: {'no longer ' if one.is_gone else ''}{line}"
                return
        yield f"{name}, version {plan.version}: {self._size(before, plan)}"

    def _size(self, before: plan_pb2.Plan | None, plan: plan_pb2.Plan) -> str:
        if plan.kind == plan_pb2.PLAN_KIND_ITEMS:
            done = sum(item.status == plan_pb2.PLAN_STATUS_COMPLETED for item in plan.items)
            return _count(len(plan.items), "item") + (f", {done} done" if done else "")
        if plan.kind == plan_pb2.PLAN_KIND_FILE:
            return f"file {self._cut(plan.body)}"
        size = _count(len(plan.body.splitlines()), "line")
        if before is None or before.kind != plan.kind:
            return size
        new, gone = count_changed_lines(before.body, plan.body)
        return f"{size}, {new} new, {gone} gone"

    def _cut(self, text: str) -> str:
        return safe_line(text, 0 if self._whole else CHARS_MAX)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

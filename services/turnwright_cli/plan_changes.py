"""What a followed loop does to the plans of its run, a line for each change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from turnwright.types.v1 import plan_pb2

from turnwright_cli.plain import safe_line
from turnwright_cli.plan_words import item_line
from turnwright_core.plans import items_moved, lines_changed

MOVED_MAX: Final = 10
"""Items that moved at once which a terminal shows one by one."""
CHARS_MAX: Final = 100
"""Longest text that a terminal shows of an item or a delta."""


class PlanChanges:
    """The plans as they were told last. Lines for a pipe (`whole`) are not cut, and leave no item out."""

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._plans: dict[str, plan_pb2.Plan | None] = {}
        self._knows_all = False

    def lacks(self, plan: plan_pb2.Plan) -> bool:
        """Whether the version before is needed to tell what changed."""
        return not self._knows_all and plan.plan_id not in self._plans and plan.version > 1 and not plan.deltas

    def knew(self, plan: plan_pb2.Plan) -> None:
        """What a plan was before, of which nothing was told yet."""
        self._plans.setdefault(plan.plan_id, plan)

    def snapshot(self, plans: Iterable[plan_pb2.Plan]) -> Iterator[str]:
        """All plans: those that were known before changed meanwhile, the first snapshot is where it begins."""
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
        """What is different; nothing for a plan that is told again."""
        is_known = plan.plan_id in self._plans or self._knows_all
        before = self._plans.get(plan.plan_id)
        self._plans[plan.plan_id] = plan
        same = before is not None and before.version == plan.version
        added = list(plan.deltas)
        if not same and not (plan.deltas and not is_known):
            yield from self._replaced(before, plan)
        elif before is None:
            # Nothing was told of it yet: the latest delta is the change.
            added = added[-1:]
        else:
            added = [
                delta for delta in added if delta.sequence > max((one.sequence for one in before.deltas), default=0)
            ]
        for delta in added:
            yield f"plan {safe_line(plan.plan_id)}, added: {self._cut(delta.text)}"

    def _replaced(self, before: plan_pb2.Plan | None, plan: plan_pb2.Plan) -> Iterator[str]:
        """A new version: by what moved where it is the same plan still, else by its size."""
        name = f"plan {safe_line(plan.plan_id)}"
        if before is not None and before.kind == plan.kind == plan_pb2.PLAN_KIND_ITEMS:
            moved = items_moved(before.items, plan.items)
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
        new, gone = lines_changed(before.body, plan.body)
        return f"{size}, {new} new, {gone} gone"

    def _cut(self, text: str) -> str:
        return safe_line(text, 0 if self._whole else CHARS_MAX)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

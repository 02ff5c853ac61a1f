"""Plans as a single list of items, for clients that support only one plan.

The lists of several plans are concatenated in the order in which the plans first appeared (AP30); without plans the
list is empty (AP33). Source: rows AP17, AP29-AP33.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace
from turnwright_values.types import PlanItem, PlanKind, PlanStatus

from turnwright_core.limits import PLAN_ITEM_CHARS_MAX
from turnwright_core.plans.items import readable_items
from turnwright_core.plans.plan import Plan

REPLACED_STATUSES: Final = {PlanStatus.CANCELLED: PlanStatus.COMPLETED, PlanStatus.BLOCKED: PlanStatus.PENDING}
"""Replacements for statuses that such a list does not have (AP17)."""

_TASK: Final = re.compile(r"[ \t]*(?:[-*+]|[0-9]{1,9}[.)])[ \t]+\[([ xX])\][ \t]+(?=\S)")


def legacy_items(plan: Plan, file_text: str = "") -> list[PlanItem]:
    """The items of one plan. `file_text` is the content of the file of a file plan."""
    if plan.kind is PlanKind.ITEMS:
        return [
            replace(item, status=REPLACED_STATUSES.get(item.status, item.status)) for item in readable_items(plan.body)
        ]
    text = file_text if plan.kind is PlanKind.FILE else plan.body
    tasks = list(_tasks(text))
    places = {task.content: place for place, task in enumerate(tasks)}
    for task in (task for delta in plan.deltas for task in _tasks(delta.text)):
        # A delta may repeat a task with its new status.
        if (place := places.setdefault(task.content, len(tasks))) < len(tasks):
            tasks[place] = task
        else:
            tasks.append(task)
    if tasks:
        return tasks
    line = _first_line(text) or (_first_line(plan.body) if plan.kind is PlanKind.FILE else "")
    return [PlanItem(line)] if line else []


def _tasks(text: str) -> Iterator[PlanItem]:
    """The lines of a task list: `- [x] done`."""
    for line in text.split("\n"):
        if found := _TASK.match(line):
            status = PlanStatus.PENDING if found[1] == " " else PlanStatus.COMPLETED
            yield PlanItem(line[found.end() :].strip()[:PLAN_ITEM_CHARS_MAX], status=status)


def _first_line(text: str) -> str:
    """The first non-empty line, without heading marks."""
    lines = (line.strip().lstrip("#").strip() for line in text.split("\n"))
    return next((line[:PLAN_ITEM_CHARS_MAX] for line in lines if line), "")

"""Plans as text: titles, items, progress."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from rich.text import Text
from turnwright.types.v1 import plan_pb2

from turnwright_cli.plain import safe_line, safe_text

_KINDS: Final[Mapping[int, str]] = {
    plan_pb2.PLAN_KIND_MARKDOWN: "markdown",
    plan_pb2.PLAN_KIND_ITEMS: "items",
    plan_pb2.PLAN_KIND_FILE: "file",
}
_PRIORITIES: Final[Mapping[int, str]] = {
    plan_pb2.PLAN_PRIORITY_HIGH: "high",
    plan_pb2.PLAN_PRIORITY_MEDIUM: "medium",
    plan_pb2.PLAN_PRIORITY_LOW: "low",
}
_STATUSES: Final[Mapping[int, tuple[str, str, str]]] = {
    plan_pb2.PLAN_STATUS_PENDING: ("pending", " ", ""),
    plan_pb2.PLAN_STATUS_IN_PROGRESS: ("in_progress", "~", "in progress"),
    plan_pb2.PLAN_STATUS_COMPLETED: ("completed", "x", ""),
    plan_pb2.PLAN_STATUS_CANCELLED: ("cancelled", "-", "cancelled"),
    plan_pb2.PLAN_STATUS_BLOCKED: ("blocked", "!", "blocked"),
}
"""For each status its name, its mark, and the word after an item, where the mark does not say it."""
_UNKNOWN: Final = ("", "?", "")
OVER: Final = (plan_pb2.PLAN_STATUS_COMPLETED, plan_pb2.PLAN_STATUS_CANCELLED)
ITEM_CHARS_MAX: Final = 60
"""Length of an item in a line about progress, in characters."""


def kind_word(plan: plan_pb2.Plan) -> str:
    return _KINDS.get(plan.kind, "")


def priority_word(item: plan_pb2.PlanItem) -> str:
    return _PRIORITIES.get(item.priority, "")


def status_word(item: plan_pb2.PlanItem) -> str:
    return _STATUSES.get(item.status, _UNKNOWN)[0]


def plan_title(plan: plan_pb2.Plan) -> str:
    """`plan main, version 2: 3/5 items done, 1 delta`."""
    title = f"plan {safe_line(plan.plan_id)}, version {plan.version}"
    parts = [items_words(plan)] if plan.kind == plan_pb2.PLAN_KIND_ITEMS else []
    if plan.deltas:
        parts.append(f"{len(plan.deltas)} delta{'' if len(plan.deltas) == 1 else 's'}")
    return f"{title}: {', '.join(parts)}" if parts else title


def items_words(plan: plan_pb2.Plan) -> str:
    done = sum(item.status == plan_pb2.PLAN_STATUS_COMPLETED for item in plan.items)
    return f"{done}/{len(plan.items)} items done"


def progress_words(plan: plan_pb2.Plan) -> str:
    """`plan 2/5: write the parser`: how far a plan of items is, and what comes next; empty if nothing does."""
    left = [item for item in plan.items if item.status not in OVER]
    if not left:
        return ""
    now = next((item for item in left if item.status == plan_pb2.PLAN_STATUS_IN_PROGRESS), left[0])
    done = sum(item.status == plan_pb2.PLAN_STATUS_COMPLETED for item in plan.items)
    return f"plan {done}/{len(plan.items)}: {safe_line(now.content, ITEM_CHARS_MAX)}"


def item_line(item: plan_pb2.PlanItem) -> str:
    """`[~] write the parser (high, in progress)`; medium priority is not shown."""
    _, mark, status = _STATUSES.get(item.status, _UNKNOWN)
    priority = "" if item.priority == plan_pb2.PLAN_PRIORITY_MEDIUM else priority_word(item)
    words = ", ".join(filter(None, (priority, status)))
    return f"[{mark}] {safe_line(item.content)}{words and f' ({words})'}"


def plan_lines(plan: plan_pb2.Plan) -> Iterator[Text]:
    """A whole plan: its title, body and deltas."""
    mode = f", mode {safe_line(plan.mode)}" if plan.mode else ""
    yield Text(plan_title(plan) + mode, style="bold")
    if plan.kind != plan_pb2.PLAN_KIND_ITEMS:
        yield from _block(plan.body)
    for item in plan.items:
        is_over = item.status in OVER
        yield Text(f"  {item_line(item)}", style="dim" if is_over else "")
        if item.evidence_paths:
            yield Text(f"      {', '.join(map(safe_line, item.evidence_paths))}", style="dim")
    for delta in plan.deltas:
        yield Text(f"  delta {delta.sequence}:", style="dim")
        yield from _block(delta.text)


def _block(text: str) -> Iterator[Text]:
    for line in safe_text(text).rstrip("\n").split("\n"):
        yield Text(f"  {line}")

"""The plan of a run as a panel of a few lines: its items with their states, around the one that is worked on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size
from turnwright.types.v1 import plan_pb2

from turnwright_cli.plain import safe_line
from turnwright_cli.plan_words import OVER, item_line, items_words

LINES_MAX: Final = 8
"""Lines of a panel, the title included."""

LINES_MIN: Final = 4
"""A panel that would have fewer lines is left out: the line about progress says as much."""

COLUMNS_MIN: Final = 30
"""Width below which an item cannot be read."""


def panel_lines(plan: plan_pb2.Plan | None, columns: int, lines: int) -> list[str]:
    """The title and as many items as fit into a space; empty if it is too small, or if nothing is left to do."""
    room = min(LINES_MAX, lines)
    left = plan is not None and any(item.status not in OVER for item in plan.items)
    if plan is None or not left or columns < COLUMNS_MIN or room < LINES_MIN:
        return []
    now = current_item(plan.items)
    shown, before, after = _window(len(plan.items), now, room - 1)
    title = f"plan {safe_line(plan.plan_id)}: {items_words(plan)}"
    if before or after:
        title += f" (items {shown.start + 1} to {shown.stop})"
    marked = [f"{'>' if number == now else ' '} {item_line(plan.items[number])}" for number in shown]
    return [_cut(line, columns) for line in (title, *marked)]


def current_item(items: Sequence[plan_pb2.PlanItem]) -> int:
    """The item that is worked on, or else the first that is not over."""
    working = [number for number, item in enumerate(items) if item.status == plan_pb2.PLAN_STATUS_IN_PROGRESS]
    return next(iter(working), next((n for n, item in enumerate(items) if item.status not in OVER), 0))


def _window(count: int, now: int, room: int) -> tuple[range, int, int]:
    """The items that fit, the current one among them with one before it; how many are left out before and after."""
    start = max(0, min(now - 1, count - room))
    shown = range(start, min(count, start + room))
    return shown, start, count - shown.stop


def _cut(line: str, columns: int) -> str:
    return line if cell_len(line) <= columns else f"{set_cell_size(line, columns - 3).rstrip()}..."

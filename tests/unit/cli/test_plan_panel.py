"""The plan of a session as a panel: what fits, which item is current, and that it is redrawn in place."""

from __future__ import annotations

import asyncio
import io

import pyte
from rich.cells import cell_len
from rich.console import Console
from turnwright.types.v1 import plan_pb2

from turnwright_cli.plans import COLUMNS_MIN, LINES_MAX, panel_lines
from turnwright_cli.status_line import StatusLine

DONE, NOW, OPEN = (
    plan_pb2.PLAN_STATUS_COMPLETED,
    plan_pb2.PLAN_STATUS_IN_PROGRESS,
    plan_pb2.PLAN_STATUS_PENDING,
)


def plan(*statuses: int, text: str = "item") -> plan_pb2.Plan:
    items = [
        plan_pb2.PlanItem(content=f"{text} {number}", status=status, priority=plan_pb2.PLAN_PRIORITY_MEDIUM)
        for number, status in enumerate(statuses, 1)
    ]
    return plan_pb2.Plan(plan_id="main", kind=plan_pb2.PLAN_KIND_ITEMS, items=items)


def test_a_plan_that_fits_is_shown_whole_with_the_current_item_marked() -> None:
    assert panel_lines(plan(DONE, NOW, OPEN), 60, 10) == [
        "plan main: 1/3 items done",
        "  [x] item 1",
        "> [~] item 2 (in progress)",
        "  [ ] item 3",
    ]


def test_of_a_long_plan_what_is_around_the_current_item_is_shown() -> None:
    lines = panel_lines(plan(*[DONE] * 20, NOW, *[OPEN] * 20), 60, 100)
    assert len(lines) == LINES_MAX
    assert lines[0] == "plan main: 20/41 items done (items 20 to 26)"
    assert lines[2].startswith("> [~] item 21")
    assert panel_lines(plan(*[DONE] * 20, OPEN), 60, 100)[-1] == "> [ ] item 21"


def test_without_room_or_work_there_is_no_panel_and_wide_characters_are_cut_by_their_width() -> None:
    assert panel_lines(plan(NOW), COLUMNS_MIN - 1, 10) == []
    assert panel_lines(plan(NOW), 60, 3) == []
    assert panel_lines(plan(DONE, DONE), 60, 10) == []
    assert panel_lines(None, 60, 10) == []
    wide = panel_lines(plan(NOW, OPEN, text="漢字\x1b[2J🙂" * 20), 40, 10)
    assert max(map(cell_len, wide)) <= 40
    assert "\x1b" not in "".join(wide)


def test_it_is_redrawn_in_place_and_leaves_nothing_behind() -> None:
    file = io.StringIO()
    shown = [plan(NOW, OPEN, OPEN), plan(DONE, NOW)]

    async def wait() -> None:
        console = Console(file=file, force_terminal=True, width=60, height=30)
        status = StatusLine(console, above=lambda: panel_lines(shown[0], 60, 10))
        status.waiting("working")
        while "working" not in file.getvalue():  # noqa: ASYNC110 - the line is drawn by a clock
            await asyncio.sleep(0.01)
        del shown[0]
        while file.getvalue().count("working") < 2:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        screen = pyte.Screen(60, 30)
        pyte.Stream(screen).feed(file.getvalue())
        lines = [line.rstrip() for line in screen.display]
        assert lines[:4] == ["plan main: 1/2 items done", "  [x] item 1", "> [~] item 2 (in progress)", lines[3]]
        assert lines[3].startswith("working (")
        assert not any(lines[4:])
        status.clear()
        pyte.Stream(screen).feed(file.getvalue()[-20:])
        assert not any(line.strip() for line in screen.display)

    asyncio.run(wait())

"""Plans in words: every status and priority, and nothing of a plan's author that moves a cursor."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from turnwright.types.v1 import plan_pb2

from turnwright_cli.output import enum_word, put
from turnwright_cli.plans import item_line, plan_lines, plan_title, priority_word

STATUSES = [value for value in plan_pb2.PlanStatus.values() if value]
PRIORITIES = [value for value in plan_pb2.PlanPriority.values() if value]
LINES = [
    "[ ] parse (high)",
    "[~] parse (in progress)",
    "[x] parse (low)",
    "[-] parse (high, cancelled)",
    "[!] parse (blocked)",
]


def test_an_item_has_a_mark_and_says_what_the_mark_does_not() -> None:
    high, medium, low = PRIORITIES
    items = zip(STATUSES, (high, medium, low, high, medium), strict=True)
    lines = [item_line(plan_pb2.PlanItem(content="parse", status=one, priority=two)) for one, two in items]
    assert lines == LINES


@pytest.mark.parametrize("value", STATUSES)
def test_every_status_has_the_name_of_the_contract(value) -> None:
    name = plan_pb2.PlanStatus.Name(value).removeprefix("PLAN_STATUS_").lower()
    assert enum_word(plan_pb2.PlanStatus.DESCRIPTOR, value) == name


@pytest.mark.parametrize("value", PRIORITIES)
def test_every_priority_has_the_name_of_the_contract(value) -> None:
    name = plan_pb2.PlanPriority.Name(value).removeprefix("PLAN_PRIORITY_").lower()
    assert priority_word(plan_pb2.PlanItem(priority=value)) == name


def plan_of(**said) -> plan_pb2.Plan:
    return plan_pb2.Plan(plan_id="main", version=2, kind=plan_pb2.PLAN_KIND_ITEMS, **said)


def test_the_title_tells_how_far_a_plan_has_come() -> None:
    items = [plan_pb2.PlanItem(content="a", status=value) for value in STATUSES]
    deltas = [plan_pb2.PlanDelta(sequence=1, text="more")]
    assert plan_title(plan_of(items=items)) == "plan main, version 2: 1/5 items done"
    assert plan_title(plan_of(items=items, deltas=deltas)) == "plan main, version 2: 1/5 items done, 1 delta"
    text = plan_pb2.Plan(plan_id="notes", version=1, kind=plan_pb2.PLAN_KIND_MARKDOWN, body="x", deltas=deltas * 2)
    assert plan_title(text) == "plan notes, version 1: 2 deltas"


def test_a_plan_is_shown_with_its_evidence_and_deltas_and_without_control_characters() -> None:
    items = [
        plan_pb2.PlanItem(content="wr\x1b[31mite\nit", status=STATUSES[2], priority=2, evidence_paths=["log://t\x9b"])
    ]
    out = io.StringIO()
    screen = Console(file=out, force_terminal=True, color_system=None, soft_wrap=True)
    for line in plan_lines(
        plan_of(items=items, mode="a\x1b", deltas=[plan_pb2.PlanDelta(sequence=1, text="x\n\x07y")])
    ):
        put(screen, line)
    assert out.getvalue().splitlines() == [
        "plan main, version 2: 1/1 items done, 1 delta, mode a",
        "  [x] wr[31mite it",
        "      log://t",
        "  delta 1:",
        "  x",
        "  y",
    ]

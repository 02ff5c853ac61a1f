"""A change of a plan is a line for each item that moved, or one for the whole; what is told again says nothing."""

from __future__ import annotations

import io

from rich.console import Console
from turnwright.executor.v1 import executor_service_pb2
from turnwright.types.v1 import plan_pb2, run_pb2

from turnwright_cli.plans import PlanChanges
from turnwright_cli.render import TextScreen

Event = executor_service_pb2.WatchRunResponse
PENDING, DONE = plan_pb2.PLAN_STATUS_PENDING, plan_pb2.PLAN_STATUS_COMPLETED
HIGH = plan_pb2.PLAN_PRIORITY_HIGH


def items(version: int, *contents: str, done: str = "", deltas=(), plan_id: str = "main") -> plan_pb2.Plan:
    steps = [plan_pb2.PlanItem(content=one, priority=HIGH, status=DONE if one in done else PENDING) for one in contents]
    added = [plan_pb2.PlanDelta(sequence=number, text=text) for number, text in enumerate(deltas, 1)]
    return plan_pb2.Plan(plan_id=plan_id, version=version, kind=plan_pb2.PLAN_KIND_ITEMS, items=steps, deltas=added)


def text(version: int, body: str, kind=plan_pb2.PLAN_KIND_MARKDOWN, deltas=()) -> plan_pb2.Plan:
    added = [plan_pb2.PlanDelta(sequence=number, text=one) for number, one in enumerate(deltas, 1)]
    return plan_pb2.Plan(plan_id="main", version=version, kind=kind, body=body, deltas=added)


def told(*plans: plan_pb2.Plan, whole: bool = True) -> list[str]:
    changes = PlanChanges(whole=whole)
    return [line for plan in plans for line in changes.updated(plan)]


def test_each_item_that_moved_is_a_line() -> None:
    first, second = items(1, "a", "b"), items(2, "a", "c", done="a")
    assert told(first, second) == [
        "plan main, version 1: 2 items",
        "  [ ] a (high)",
        "  [ ] b (high)",
        "plan main: [x] a (high)",
        "plan main: [ ] c (high)",
        "plan main: no longer [ ] b (high)",
    ]


def test_another_plan_and_one_of_which_nothing_moved_are_described_by_their_size() -> None:
    assert told(items(1, "a"), items(2, "b", "c", done="c"), items(3, "c", "b", done="c")) == [
        "plan main, version 1: 1 item",
        "  [ ] a (high)",
        "plan main, version 2: 2 items, 1 done",
        "  [ ] b (high)",
        "  [x] c (high)",
        "plan main, version 3: 2 items, 1 done",
        "  [x] c (high)",
        "  [ ] b (high)",
    ]


def test_a_plan_that_is_sent_again_says_nothing() -> None:
    plan = items(1, "a", deltas=["more"])
    assert told(plan, plan) == ["plan main, added: more"]


def test_each_delta_is_a_line_and_once() -> None:
    plans = (items(1, "a"), items(1, "a", deltas=["one\ntwo"]), items(1, "a", deltas=["one\ntwo", "three"]))
    lines = ["plan main, version 1: 1 item", "  [ ] a (high)", "plan main, added: one two", "plan main, added: three"]
    assert told(*plans) == lines
    assert told(plans[0], plans[2]) == lines


def test_a_text_is_described_by_its_lines_and_a_file_by_its_path() -> None:
    file = text(3, "docs/plan.md", plan_pb2.PLAN_KIND_FILE)
    assert told(text(1, "a\nb\n"), text(2, "a\nc\nd\n"), file) == [
        "plan main, version 1: 2 lines",
        *("  a", "  b"),
        "plan main, version 2: 3 lines, 2 new, 1 gone",
        *("  a", "  c", "  d"),
        "plan main, version 3: file docs/plan.md",
    ]


def test_a_terminal_gets_short_lines_and_few_of_them() -> None:
    names = [f"step {number}" for number in range(11)]
    plans = (items(1, *names), items(2, *names, done="step 0, step 1", deltas=["long " * 100]))
    ones = (items(1, *names), items(2, *names, done=" ".join(names)))
    assert told(*plans, whole=False)[-1] == f"plan main, added: {('long ' * 100)[:97]}..."
    first = [f"  [ ] {name} (high)" for name in names[:10]]
    assert told(ones[0], whole=False) == ["plan main, version 1: 11 items", *first, "  and 1 more"]
    assert told(*ones, whole=False)[12] == "plan main, version 2: 11 items, 11 done"
    assert len(told(*ones)) == 12 + 11


def test_a_snapshot_is_where_it_begins_and_later_ones_tell_what_changed() -> None:
    changes = PlanChanges(whole=True)
    assert list(changes.snapshot([items(1, "a", "b"), items(1, "z", plan_id="old")])) == []
    assert list(changes.updated(items(2, "a", "b", done="a"))) == ["plan main: [x] a (high)"]
    assert list(changes.snapshot([items(3, "a", "b", done="a, b"), items(1, "n", plan_id="new")])) == [
        "plan old: removed",
        "plan main: [x] b (high)",
        "plan new, version 1: 1 item",
        "  [ ] n (high)",
    ]


def test_the_version_before_is_needed_where_nothing_was_told_of_it() -> None:
    changes = PlanChanges(whole=True)
    assert changes.lacks(items(2, "a", "b", done="a"))
    assert not changes.lacks(items(1, "a"))
    assert not changes.lacks(items(2, "a", deltas=["more"]))
    changes.knew(items(1, "a", "b"))
    assert not changes.lacks(items(2, "a", "b", done="a"))
    assert list(changes.updated(items(2, "a", "b", done="a"))) == ["plan main: [x] a (high)"]
    assert list(changes.removed("main")) == ["plan main: removed"]
    assert not changes.lacks(items(3, "a"))
    assert list(changes.updated(items(3, "a"))) == ["plan main, version 3: 1 item", "  [ ] a (high)"]


def test_the_screen_of_a_task_shows_the_lines_among_the_others() -> None:
    out = io.StringIO()
    screen = TextScreen(Console(file=out, highlight=False))
    screen.begin(run_pb2.Run(project="p", run="r"), 1)
    for plan in (items(1, "a", "b"), items(2, "a", "b", done="a\x1b")):
        screen.show(Event(plan_updated=plan))
    screen.show(Event(plan_removed="main"))
    assert out.getvalue().splitlines()[1:] == [
        "  plan main, version 1: 2 items",
        *("    [ ] a (high)", "    [ ] b (high)"),
        "  plan main: [x] a (high)",
        "  plan main: removed",
    ]

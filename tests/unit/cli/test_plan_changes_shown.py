"""Which items of a plan moved between two states, and how many lines of a text."""

import pytest
from turnwright_values.types import PlanItem, PlanPriority, PlanStatus

from turnwright_cli.plans import count_changed_lines, diff_items

DONE = PlanStatus.COMPLETED


def plan(*contents: str, **done: PlanStatus) -> tuple[PlanItem, ...]:
    """Items by their contents; of those that are named by a status."""
    return tuple(PlanItem(one, status=done.get(one, PlanStatus.PENDING)) for one in contents)


def told(before, after):
    moved = diff_items(before, after)
    return moved if moved is None else [(one.item.content, int(one.item.status), one.is_gone) for one in moved]


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        (plan("a", "b"), plan("a", "b", b=DONE), [("b", 3, False)]),
        (plan("a", "b"), plan("b", "a"), []),
        (plan("a"), plan("b", "a", "c"), [("b", 1, False), ("c", 1, False)]),
        (plan("a", "b", b=DONE), plan("c", "a"), [("c", 1, False), ("b", 3, True)]),
        (plan("a", "a"), plan("a", "a", "a"), [("a", 1, False)]),
        (plan("a", "a"), plan("a", "a", a=DONE), [("a", 3, False), ("a", 3, False)]),
        (plan("a"), plan("b"), None),
        (plan(), plan("a"), None),
        (plan("a"), plan(), None),
        (plan(), plan(), []),
    ],
)
def test_items_are_known_by_their_content(before, after, moved) -> None:
    assert told(before, after) == moved


def test_another_priority_moves_an_item_and_other_evidence_does_not() -> None:
    before = (PlanItem("a"),)
    assert told(before, (PlanItem("a", PlanPriority.HIGH),)) == [("a", 1, False)]
    assert told(before, (PlanItem("a", evidence_paths=("log://turn_1/sh/x",)),)) == []


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ("a\nb\n", "a\nb\n", (0, 0)),
        ("a\nb", "b\na\nc", (1, 0)),
        ("a\na", "a", (0, 1)),
        ("a\nb", "a\nB\nC", (2, 1)),
        ("", "a", (1, 0)),
    ],
)
def test_lines_are_counted_wherever_they_stand(before, after, changed) -> None:
    assert count_changed_lines(before, after) == changed

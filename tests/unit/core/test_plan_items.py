"""The items of a plan: what they must be, and how they are kept."""

import json

import pytest
from turnwright_values.types import PlanItem, PlanPriority, PlanStatus

from turnwright_core.errors import InvalidError, Reason
from turnwright_core.plans.items import items_json, items_of, readable_items

GOOD = {"content": "do it", "priority": "high", "status": "in_progress"}
ITEM = PlanItem("do it", PlanPriority.HIGH, PlanStatus.IN_PROGRESS)


def body(*items):
    return json.dumps(items)


def test_items_are_read_as_they_are_written():
    """AP08."""
    items = (ITEM, PlanItem("größer\nund besser", PlanPriority.LOW, PlanStatus.CANCELLED, ("src/a.py", "log://1")))
    assert items_of(items_json(items)) == items
    assert items_json(items_of(items_json(items))) == items_json(items)
    assert "größer" in items_json(items)
    assert items_of("[]") == () == items_of(items_json(()))


@pytest.mark.parametrize("status", ["pending", "in_progress", "completed", "cancelled", "blocked"])
@pytest.mark.parametrize("priority", ["high", "medium", "low"])
def test_the_words_are_those_of_the_contract(status, priority):
    (item,) = items_of(body({**GOOD, "status": status, "priority": priority}))
    assert (item.status.name, item.priority.name) == (status.upper(), priority.upper())


@pytest.mark.parametrize(
    ("bad", "field", "why"),
    [
        ("text", "items[1]", "must be an object"),
        (None, "items[1]", "must be an object"),
        ({}, "items[1].content", "non-empty"),
        ({**GOOD, "content": " \n"}, "items[1].content", "non-empty"),
        ({**GOOD, "content": 5}, "items[1].content", "non-empty"),
        ({**GOOD, "content": "\ud800"}, "items[1].content", "surrogate"),
        ({**GOOD, "content": "a\x00"}, "items[1].content", "NUL"),
        ({**GOOD, "priority": "urgent"}, "items[1].priority", 'high, medium, low; it is "urgent"'),
        ({**GOOD, "priority": "High"}, "items[1].priority", "high, medium, low"),
        ({"content": "x", "status": "pending"}, "items[1].priority", "it is missing"),
        ({**GOOD, "status": "done"}, "items[1].status", "pending, in_progress, completed, cancelled, blocked"),
        ({**GOOD, "status": ["pending"]}, "items[1].status", "pending, in_progress"),
        ({"content": "x", "priority": "low"}, "items[1].status", "it is missing"),
        ({**GOOD, "evidence_paths": "src/a.py"}, "items[1].evidence_paths", "a list of paths"),
        ({**GOOD, "evidence_paths": ["a", ""]}, "items[1].evidence_paths[1]", "non-empty"),
    ],
)
def test_the_first_bad_item_is_named_with_what_is_wrong(bad, field, why):
    """AP16."""
    with pytest.raises(InvalidError) as caught:
        items_of(body(GOOD, bad, "worse"))
    assert (caught.value.reason, caught.value.metadata) == (Reason.INVALID_FIELD, {"field": field})
    assert caught.value.message.startswith(field)
    assert why in caught.value.message
    assert readable_items(body(GOOD, bad, GOOD)) == (ITEM, ITEM)


@pytest.mark.parametrize(
    ("items", "field", "limit"),
    [
        ([GOOD] * 501, "items", 500),
        ([{**GOOD, "content": "x" * 4097}], "items[0].content", 4096),
        ([{**GOOD, "evidence_paths": ["x"] * 17}], "items[0].evidence_paths", 16),
        ([{**GOOD, "evidence_paths": ["x" * 2049]}], "items[0].evidence_paths[0]", 2048),
    ],
)
def test_items_have_limits(items, field, limit):
    with pytest.raises(InvalidError) as caught:
        items_of(body(*items))
    assert caught.value.reason is Reason.LIMIT_EXCEEDED
    assert (caught.value.metadata["field"], caught.value.metadata["limit"]) == (field, str(limit))


def test_items_at_their_limits_are_taken():
    assert len(items_of(body(*[GOOD] * 500))) == 500
    most = {**GOOD, "content": "é" * 4096, "evidence_paths": ["x" * 2048] * 16, "note": "somebody else's"}
    assert len(items_of(body(most))[0].evidence_paths) == 16


@pytest.mark.parametrize("text", ["", "{}", "no json", '"[]"', "null", "[" * 100_000, "[" * 5_000])
def test_what_is_no_list_has_no_items(text):
    with pytest.raises(InvalidError) as caught:
        items_of(text)
    assert caught.value.metadata == {"field": "body"}
    assert readable_items(text) == ()

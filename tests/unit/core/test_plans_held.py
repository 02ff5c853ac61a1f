"""What a client holds of plans, which of them entries move, and the one list. Rows AP17, AP20-AP26, AP29-AP33."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace
from turnwright_values.types import PlanDelta, PlanItem, PlanKind, PlanStatus

from cases import Case, expect, load_cases, load_shared, params
from turnwright_core.plans.items import items_json, readable_items, word
from turnwright_core.plans.plan import Plan, WatchedPlans
from turnwright_executor.watching.plans import legacy_items

OUR_STATUSES = {"L14": "blocked is one of our statuses, so the item is kept"}
SAID_AGAIN = {"F10": "a list that did not change is not told again (AP43)"}


def read(raw: object) -> list[PlanItem]:
    return list(readable_items(json.dumps(raw)))


def shown(items: list[PlanItem]) -> list[dict[str, str]]:
    return [{"content": one.content, "priority": word(one.priority), "status": word(one.status)} for one in items]


def content(plan: dict[str, Any]) -> dict[str, Any]:
    """A plan of the cases, of whose items the readable ones are kept."""
    return plan | ({"entries": shown(read(plan["entries"]))} if plan["type"] == "items" else {})


@pytest.mark.parametrize("case", params("acp/plan_sequences.jsonl"))
def test_a_client_holds_what_it_was_told_last(case: Case) -> None:
    held: WatchedPlans[dict[str, Any], list[dict[str, str]]] = WatchedPlans()
    for update in case["updates"]:
        match update["sessionUpdate"]:
            case "plan_update" if "type" in update["plan"]:
                held.update(update["plan"]["planId"], content(update["plan"]))
            case "plan_removed":
                held.remove(update["planId"])
            case "plan":
                held.legacy = shown(read(update["entries"]))
    assert list(held.plans.values()) == case["expect"]["plans"]
    assert held.legacy == case["expect"]["legacy_plan"]


MESSAGES = {case["id"]: case for case in load_cases("acp/plan_messages.jsonl")}
LISTS = {
    name: case
    for name, case in MESSAGES.items()
    if (case["expect"]["normalized_update"] or {}).get("sessionUpdate") == "plan"
    or ((case["expect"]["normalized_update"] or {}).get("plan") or {}).get("type") == "items"
}
"""Messages of which a receiver keeps a list of items, some of them less than they say."""


def entries(update: dict[str, Any]) -> Any:
    return update["entries"] if update["sessionUpdate"] == "plan" else update["plan"]["entries"]


@pytest.mark.parametrize("name", LISTS)
def test_of_a_list_in_a_message_what_can_be_read_is_kept(name: str) -> None:
    """AP16 as a receiver: one bad item is left out, and the others stand."""
    wanted = entries(LISTS[name]["expect"]["normalized_update"])
    kept = [{key: one[key] for key in ("content", "priority", "status")} for one in wanted]
    expect(name, passed=shown(read(entries(LISTS[name]["params"]["update"]))) == kept, exceptions=OUR_STATUSES)


def test_every_message_is_read_or_named() -> None:
    """The shape of a message itself (ids, types, envelopes) is for the agent that speaks that protocol."""
    others = {case["id"] for case in load_shared("acp/plan_messages.jsonl")} - LISTS.keys()
    assert {name for name in others if not name.startswith("I")} <= {"V04"}, "a text, kept as it is"
    assert all(MESSAGES[name]["expect"]["normalized_update"] is None for name in others - {"V04"})


def held_with(*plan_ids: str) -> WatchedPlans[str, str]:
    held: WatchedPlans[str, str] = WatchedPlans()
    for plan_id in plan_ids:
        held.update(plan_id, plan_id)
    return held


def test_a_plan_keeps_its_place_when_it_is_replaced_and_loses_it_when_it_is_removed() -> None:
    """AP21, AP25."""
    held = held_with("a", "b", "c")
    held.update("a", "another")
    assert list(held.plans.items()) == [("a", "another"), ("b", "b"), ("c", "c")]
    held.remove("a")
    held.update("a", "again")
    assert list(held.plans) == ["b", "c", "a"]


def test_to_remove_a_plan_that_nobody_knows_changes_nothing() -> None:
    """AP20; identities are compared exactly: AP24."""
    held = held_with("a")
    for unknown in ("A", "a ", "", "b"):
        held.remove(unknown)
    assert list(held.plans) == ["a"]


def test_the_one_list_is_a_slot_of_its_own() -> None:
    """AP26."""
    held = held_with("a")
    held.legacy = "list"
    held.remove("a")
    assert (held.plans, held.legacy) == ({}, "list")
    held.replace([("b", "b")], None)
    assert (held.plans, held.legacy) == ({"b": "b"}, None)


def put(op: Case) -> Plan:
    kind = PlanKind[op["type"].upper()]
    body = json.dumps(op["entries"]) if kind is PlanKind.ITEMS else op.get("content") or op["uri"]
    return Plan(op["planId"], kind, body)


@pytest.mark.parametrize("case", params("acp/plan_fallback.jsonl"))
def test_plans_are_one_list_for_who_knows_of_no_other(case: Case) -> None:
    """AP29-AP33, AP17; the message with a text is another client's matter."""
    held: WatchedPlans[Plan, list[PlanItem]] = WatchedPlans()
    told: list[list[PlanItem]] = []
    for op in case["ops"]:
        if op["op"] == "put":
            held.update(op["planId"], put(op))
        else:
            held.remove(op["planId"])
        items = [item for plan in held.plans.values() for item in legacy_items(plan)]
        if items != held.legacy:
            held.legacy = items
            told.append(items)
    wanted = [
        [{name: text for name, text in one.items() if name != "_meta"} for one in update["entries"]]
        for update in case["expect"]["wire"]
        if update["sessionUpdate"] == "plan"
    ]
    expect(case["id"], passed=[shown(items) for items in told] == wanted, exceptions=SAID_AGAIN)


def test_a_status_that_the_list_does_not_have_is_reported_as_the_nearest() -> None:
    """AP17."""
    plan = Plan("a", PlanKind.ITEMS, items_json([PlanItem(word(status), status=status) for status in PlanStatus]))
    assert [word(item.status) for item in legacy_items(plan)] == [
        "pending", "in_progress", "completed", "completed", "pending",
    ]  # fmt: skip


def test_the_items_of_a_text_are_its_tasks_as_its_deltas_tell_them() -> None:
    """AP31."""
    body = "# Plan\n\n1. [ ] One\r\n  * [X] Two\n- [] none\n- [ ]  \nThree"
    deltas = (PlanDelta(1, "Done:\n- [x] One", 0), PlanDelta(2, "- [ ] Four", 0))
    plan = Plan("a", PlanKind.MARKDOWN, body, deltas=deltas)
    assert [(item.content, word(item.status)) for item in legacy_items(plan)] == [
        ("One", "completed"),
        ("Two", "completed"),
        ("Four", "pending"),
    ]


def test_the_items_of_a_file_are_those_of_its_text() -> None:
    """AP32."""
    plan = Plan("a", PlanKind.FILE, "docs/plan.md")
    assert [item.content for item in legacy_items(plan, "# Steps\n- [ ] One\n- [ ] Two")] == ["One", "Two"]
    assert [item.content for item in legacy_items(plan, "\n## Steps\nsome")] == ["Steps"]
    assert [item.content for item in legacy_items(plan)] == ["docs/plan.md"]
    told = replace(plan, deltas=(PlanDelta(1, "- [x] Two", 0), PlanDelta(2, "- [ ] Three", 0)))
    items = legacy_items(told, "# Steps\n\n1. [x] One\r\n  * [ ] Two\n- [] none")
    assert [(item.content, word(item.status)) for item in items] == [
        ("One", "completed"),
        ("Two", "completed"),
        ("Three", "pending"),
    ]


def test_a_text_of_nothing_has_no_item() -> None:
    assert legacy_items(Plan("a", PlanKind.MARKDOWN, " \n#\n")) == []

"""What a tolerant reader makes of updates of plans (AP01, AP20-AP28)."""

import pytest

from cases import NEEDS_SHARED, load_cases, params
from turnwright_acp.shapes import capabilities_of
from turnwright_core.plans.plan import WatchedPlans
from turnwright_mcp.agent_updates import read_update


@pytest.mark.parametrize("case", params("acp/plan_messages.jsonl"))
def test_an_update_is_read_as_far_as_it_can_be(case):
    assert read_update(case["params"]) == case["expect"]["normalized_update"]


@pytest.mark.parametrize("case", params("acp/plan_sequences.jsonl"))
def test_a_session_goes_on_behind_what_cannot_be_read(case):
    held, dropped = WatchedPlans(), []
    for index, update in enumerate(case["updates"]):
        match read_update({"sessionId": "s", "update": update}):
            case {"sessionUpdate": "plan_update", "plan": plan}:
                held.update(plan["planId"], plan)
            case {"sessionUpdate": "plan_removed", "planId": plan_id}:
                held.remove(plan_id)
            case {"sessionUpdate": "plan", "entries": entries}:
                held.legacy = entries
            case None:
                dropped.append(index)
    expected = case["expect"]
    assert list(held.plans.values()) == expected["plans"]
    assert held.legacy == expected["legacy_plan"]
    assert dropped == expected["ignored_indexes"]


@pytest.mark.parametrize("case", params("acp/capability.jsonl"))
def test_plan_operations_are_for_who_declares_them_in_the_right_place(case):
    raw = case["params"].get("clientCapabilities")
    assert capabilities_of(raw).has_plans is case["expect"]["plan_operations"]


@NEEDS_SHARED
def test_the_cases_are_there():
    assert all(load_cases(f"acp/{name}.jsonl") for name in ("plan_messages", "plan_sequences", "capability"))

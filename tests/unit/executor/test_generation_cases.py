"""Cases of generation from another agent: whether a turn follows, cut replies, amounts of reasoning, prompts that grow."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from turnwright_values.provider import Finish
from turnwright_values.types import SessionState, State

from cases import params
from turnwright_core.models import Reasoning
from turnwright_core.session import session_state
from turnwright_executor.domain.verdict import GO_ON, RULES, RecordFacts, ReplyFacts, TurnFacts
from turnwright_provider.domain.model_call import was_cut
from turnwright_provider.domain.presets import by_effort, by_switch, by_template

TESTS = Path(__file__).resolve().parents[2]
APART = {
    "tail_needs_assistant/event": "an event begins no turn: a schedule adds a prompt of its own (RE07)",
    "tail_needs_assistant/tool_server": "a reply that is blocks of a server alone says nothing: a strike, and the model is asked again",
    "length_stop_kind/context": "whatever cut a reply, half a command may do harm: it counts as cut (C54)",
    "length_stop/": "C54: a cut reply is a turn like any other, so no attempts are counted",
    "finish_reason/": "contract/provider/test_wires.py::test_a_loop_of_tools_over_chat_completions",
    "prepare/images_replaced": "a model that takes no images refuses the call, and the error says so (LoopSettings.images)",
    "prepare/images_kept": "unit/core/test_transcript.py::test_an_image_keeps_its_place_among_texts",
}
"""Where we differ, or what proves it, by the beginnings of the cases' names."""


def turn_follows(messages: list[dict]) -> bool:
    """Whether the model is asked: by the rules of the verdict on the latest reply, or for a prompt that waits."""
    replies = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    if not replies or any(message["role"] == "user" for message in messages[replies[-1] :]):
        waits = sum(message["role"] == "user" for message in messages)
        return session_state(0, "", waits, ()) is SessionState.GENERATING
    reply = messages[replies[-1]]
    results = {message["tool_call_id"]: message for message in messages[replies[-1] :] if message["role"] == "tool"}
    ours = [call for call in reply.get("tool_calls") or () if not call["id"].startswith("srvtoolu_")]
    records = tuple(
        RecordFacts(call["id"], call["function"]["name"], State.RESOLVED if call["id"] in results else State.RECORDED)
        for call in ours
    )
    facts = TurnFacts(records, ReplyFacts(bool(ours), reply["content"]), 0, "f", (), 1)
    return functools.reduce(lambda vote, rule: rule[1](vote, facts), RULES, GO_ON).continue_


def is_cut(reason: str) -> bool:
    return was_cut(Finish(reason, None, "m"))


def is_reasoning(sampling: dict) -> bool:
    """Whether these fields ask for reasoning: they are what one of our wires sends for an amount."""
    amounts = {Reasoning("off"): False, Reasoning("high"): True}
    for amount, asks in amounts.items():
        asked = [by_switch(amount), by_effort(amount), by_template(amount), *by_template(amount).values()]
        if sampling in asked:
            return asks
    assert sampling == {}
    return False


def body(request: dict) -> bytes:
    return b"".join(json.dumps(message).encode() for message in request["messages"])


@pytest.mark.parametrize("case", params("refact/generation.jsonl"))
def test_a_case_of_generation_holds(case) -> None:
    # RS03, RL01, C54
    name, given, expected = case["id"], case["input"], case["expected"]
    if where := next((reason for begin, reason in APART.items() if name.startswith(begin)), ""):
        path, mark, test = where.partition("::")
        assert not mark or f"def {test}(" in (TESTS / path).read_text()
        return
    match name.partition("/")[0]:
        case "tail_needs_assistant":
            assert turn_follows(given["messages"]) is expected
        case "stop_reason":
            assert is_cut(given["finish_reason"]) is (expected == "provider_length_stop")
        case "length_stop_kind":
            # The complete calls of a cut reply are carried out.
            message = given["message"]
            asks_again = is_cut(message.get("finish_reason", "")) and not message.get("tool_calls")
            assert asks_again is (expected is not None)
        case "prepare":
            assert is_reasoning(given["sampling"]) is expected
        case "cache_guard":
            before, after = body(given["prev"]), body(given["next"])
            assert after.startswith(before) is expected["append_only"]
        case kind:
            raise AssertionError(kind)

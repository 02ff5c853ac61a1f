"""What users of other products reported of streams, histories and errors of vendors (cases/strangers)."""

import json
from typing import Any

import pytest

from cases import NEEDS_SHARED, load_shared
from turnwright_core.chat.message import Role, text_message
from turnwright_core.chat.reply import PartialReply
from turnwright_provider.domain.classify import classify
from turnwright_provider.domain.model_call import Finish, ModelCall
from turnwright_provider.domain.wires.wire import wire_class

pytestmark = NEEDS_SHARED

LAYERS = {"chat-stream": "chat", "responses-stream": "responses", "anthropic-stream": "anthropic"}
CASES = load_shared("strangers/replies_and_edits.jsonl")


def of(*layers: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CASES if case["layer"] in layers]


def folded(wire: str, events: list[dict[str, Any]]) -> tuple[PartialReply, str]:
    fold, reply, finish = wire_class(wire)().fold(), PartialReply(), ""
    for part in [*(delta for event in events for delta in fold.take(event)), *fold.close()]:
        if isinstance(part, Finish):
            finish = part.reason
        else:
            reply.add(part)
    return reply, finish


@pytest.mark.parametrize("case", of(*LAYERS))
def test_a_stream_is_the_message_that_was_meant(case):
    events = case["input"]
    if case["layer"] == "chat-stream":
        events = [{"choices": [{"delta": delta}]} for delta in events]
        events.append({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    reply, finish = folded(LAYERS[case["layer"]], events)
    got = {"text": reply.text, "calls": [[call.name, call.arguments] for call in reply.calls], "finish": finish}
    assert {name: got[name] for name in case["right"]} == case["right"]


@pytest.mark.parametrize("case", of("sent-back"))
def test_what_a_vendor_refuses_is_not_sent_back(case):
    wire = case["input"]["wire"]
    reply, _ = folded(wire, case["input"]["reply"])
    messages = (text_message(Role.USER, "one"), reply.message("v/m"), text_message(Role.USER, "two"))
    body = wire_class(wire)().request(ModelCall("m", messages, vendor_model="v/m"), frozenset()).body
    assert case["right"]["absent"] not in body.decode()


@pytest.mark.parametrize("case", of("vendor-error"))
def test_an_error_has_its_class_and_wait(case):
    status, body, *headers = case["input"]
    failure = classify(status, headers[0] if headers else {}, json.dumps(body).encode(), 0.0)
    right = case["right"]
    assert (failure.kind.value, failure.retry_after_s) == (right["class"], right.get("wait_s"))

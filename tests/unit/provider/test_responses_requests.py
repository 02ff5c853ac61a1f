"""Requests of OpenAI's Responses: every recorded one comes out of our own terms again, and each of our terms goes in."""

import json
from typing import Any

import pytest
from turnwright_values.replies import ServerBlock, ThinkingBlock, ToolCall

from cases import NEEDS_SHARED
from turnwright_core.chat.message import Image, Message, Role, Text, text_message
from turnwright_core.models import Reasoning, ToolChoice
from turnwright_provider.domain.model_call import ModelCall, ResponseFormat, ToolSpec
from turnwright_provider.domain.wires.responses import ResponsesWire
from unit.provider.recorded import recorded, request_of
from unit.provider.responses_requests import OURS, call_of, normal

REQUESTS = {i: body for i, case in recorded(api="openai.responses").items() if (body := request_of(case))}
USER = text_message(Role.USER, "hi")
TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})


@pytest.mark.parametrize("case_id", REQUESTS)
def test_a_recorded_request_comes_out_of_its_call_again(case_id):
    body = REQUESTS[case_id]
    request = ResponsesWire().request(call_of(body), frozenset())
    assert normal(json.loads(request.body)) == normal(body)
    marked = "prompt_cache_breakpoint" in json.dumps(body)
    assert [one.field for one in request.dropped] == ["cache"] * marked


@NEEDS_SHARED
def test_the_recorded_requests_hold_what_requests_can_hold():
    told = json.dumps(list(REQUESTS.values()))
    assert len(REQUESTS) >= 50
    for word in ("input_image", "function_call_output", "encrypted_content", "instructions", "tool_choice"):
        assert f'"{word}"' in told


def sent(call: ModelCall, *without: str) -> tuple[dict[str, Any], list[str]]:
    request = ResponsesWire().request(call, frozenset(without))
    return json.loads(request.body), [one.field for one in request.dropped]


def test_every_field_of_a_call_has_its_place():
    system = text_message(Role.SYSTEM, "s")
    call = ModelCall(
        "m", (system, USER, system), 0.5, 9, tools=(TOOL,), tool_choice=ToolChoice(tool="look", single=True),
        stop=("x",), response_format=ResponseFormat({"type": "object"}, "form", strict=True),
        reasoning=Reasoning("low"), metadata={"user": "u"}, extra={"include": ["more"], "truncation": "auto"},
    )  # fmt: skip
    assert sent(call) == (
        {
            "model": "m",
            "instructions": "s",
            "input": [{"role": "user", "content": "hi"}, {"role": "developer", "content": "s"}],
            "stream": True,
            "store": False,
            "include": ["reasoning.encrypted_content", "more"],
            "temperature": 0.5,
            "max_output_tokens": 9,
            "tools": [{"type": "function", "name": "look", "description": "Looks.", "strict": False,
                       "parameters": dict(TOOL.parameters)}],
            "tool_choice": {"type": "function", "name": "look"},
            "parallel_tool_calls": False,
            "text": {"format": {"type": "json_schema", "name": "form", "schema": {"type": "object"}, "strict": True}},
            "reasoning": {"effort": "low", "summary": "auto"},
            "metadata": {"user": "u"},
            "truncation": "auto",
        },
        ["stop"],
    )  # fmt: skip


def test_a_reply_goes_back_in_the_order_in_which_it_was_written():
    # RD08
    reasoning = {"summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "e"}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    reply = Message(
        Role.ASSISTANT,
        (Text("a"),),
        thinking=(ThinkingBlock("reasoning", 0, "rs_1", "s", data=json.dumps(reasoning)),),
        server_blocks=(ServerBlock(1, json.dumps(search)),),
        calls=(ToolCall("look", "", 0, "c0", block=3),),
        vendor_model=OURS,
    )
    image = Image("image/png", b"\x89")
    answer = Message(Role.TOOL, (Text("seen"), image), call_id="c0")
    body, dropped = sent(ModelCall("m", (USER, reply, answer), vendor_model=OURS))
    assert body["input"][1:] == [
        {"type": "reasoning", "id": "rs_1", **reasoning},
        search,
        {"type": "message", "role": "assistant", "content": "a"},
        {"type": "function_call", "call_id": "c0", "name": "look", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "c0",
            "output": [
                {"type": "input_text", "text": "seen"},
                {"type": "input_image", "image_url": "data:image/png;base64,iQ=="},
            ],
        },
    ]
    assert dropped == []


def test_what_responses_have_no_place_for_is_named():
    system = Message(Role.SYSTEM, (Text("s", cache=True), Image(url="https://x/y.png")))
    reply = Message(Role.ASSISTANT, (Text("a"),), thinking=(ThinkingBlock("thinking", 0, text="t"),), vendor_model=OURS)
    body, dropped = sent(ModelCall("m", (system, reply, USER), vendor_model=OURS))
    assert body["input"] == [
        {"type": "message", "role": "assistant", "content": "a"},
        {"role": "user", "content": "hi"},
    ]
    assert dropped == ["images", "thinking", "cache"]


def test_a_call_of_the_system_alone_has_an_input():
    body, _ = sent(ModelCall("m", (text_message(Role.SYSTEM, "s"),)))
    assert body["input"] == [{"role": "developer", "content": "s"}]
    assert "instructions" not in body


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("Encrypted content is not supported with this model.", "include"),
        ("Unsupported: your organization must be verified to generate reasoning summaries.", "summary"),
        ("Unsupported parameter: 'temperature' is not supported with this model.", "temperature"),
        ("Invalid parameter: 'text.format' of type 'json_schema' is not supported with this model.", "response_format"),
        ("Unknown parameter: parallel_tool_calls", "tool_choice"),
        ("metadata is not supported", "metadata"),
        ("Unsupported parameter: 'reasoning.effort' is not supported with this model.", "reasoning"),
        ("tools are not supported", None),
    ],
)
def test_a_refused_field_gives_way_once(message, field):
    call = ModelCall(
        "m", (USER,), 0.5, 9, tools=(TOOL,), tool_choice=ToolChoice(single=True), response_format=ResponseFormat(),
        reasoning=Reasoning("low"), metadata={"user": "u"},
    )  # fmt: skip
    wire = ResponsesWire()
    answer = json.dumps({"error": {"message": message}}).encode()
    assert wire.refused_field(400, answer, call, frozenset()) == field
    if field is not None:
        assert len(wire.request(call, {field}).body) < len(wire.request(call, frozenset()).body)
        assert wire.refused_field(400, answer, call, {field}) in {None, "reasoning"} - {field}

"""Requests of chat completions: every recorded one comes out of our own terms again, and each of our terms goes in."""

import json
from typing import Any

import pytest
from turnwright_values.replies import ServerBlock, ThinkingBlock, ToolCall

from cases import NEEDS_SHARED, expect
from turnwright_core.chat.message import Image, Message, Role, Text, text_message
from turnwright_core.models import Reasoning, ToolChoice
from turnwright_provider.domain.model_call import ModelCall, ResponseFormat, ToolSpec
from turnwright_provider.domain.presets import by_effort, by_openrouter
from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.wires.chat import ChatWire
from unit.provider.chat_requests import OURS, call_of, normal
from unit.provider.recorded import recorded, request_of

REQUESTS = {i: body for i, case in recorded().items() if (body := request_of(case)) and body.get("messages")}
EXCEPTIONS = {
    "perplexity/ruby_llm_vcr_cassettes_chat_document_models_perplexity_sonar_pro_understands_docx_documents_0": "a "
    "document is a part that messages do not have"
}

USER = text_message(Role.USER, "hi")
TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})


@pytest.mark.parametrize("case_id", REQUESTS)
def test_a_recorded_request_comes_out_of_its_call_again(case_id):
    body = REQUESTS[case_id]
    asking = by_openrouter if "reasoning" in body else by_effort
    wire = ChatWire(ThinkTags.ANYWHERE, asking, marks=True)
    request = wire.request(call_of(body), {"max_tokens"} if "max_completion_tokens" in body else frozenset())
    expect(case_id, passed=normal(json.loads(request.body)) == normal(body), exceptions=EXCEPTIONS)
    assert request.dropped == ()


@NEEDS_SHARED
def test_the_recorded_requests_hold_what_requests_can_hold():
    told = json.dumps(list(REQUESTS.values()))
    assert len(REQUESTS) >= 150
    for word in ("image_url", "tool_call_id", "reasoning_details", "reasoning_content", "cache_control", "json_schema"):
        assert f'"{word}"' in told


def sent(call: ModelCall, wire: ChatWire | None = None, *without: str) -> tuple[dict[str, Any], list[str]]:
    wire = wire or ChatWire(ThinkTags.ANYWHERE)
    request = wire.request(call, frozenset(without))
    return json.loads(request.body), [one.field for one in request.dropped]


def test_every_field_of_a_call_has_its_place():
    call = ModelCall(
        "m", (USER,), 0.5, 9, tools=(TOOL,), tool_choice=ToolChoice("required", single=True), stop=("x",),
        response_format=ResponseFormat({"type": "object"}, "form", strict=True), reasoning=Reasoning("low"),
        metadata={"user": "u"}, extra={"seed": 7, "metadata": {"more": "m"}},
    )  # fmt: skip
    assert sent(call) == (
        {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.5,
            "max_tokens": 9,
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "look", "description": "Looks.", "parameters": dict(TOOL.parameters)},
                }
            ],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "stop": ["x"],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "form", "schema": {"type": "object"}, "strict": True},
            },
            "reasoning_effort": "low",
            "metadata": {"user": "u", "more": "m"},
            "seed": 7,
        },
        [],
    )


def test_images_of_tools_follow_the_answers_in_a_message_of_the_user():
    image = Image("image/png", b"\x89")
    calls = tuple(ToolCall("look", "{}", n, f"c{n}") for n in range(2))
    answers = [Message(Role.TOOL, (Text("seen"), image), call_id="c0"), Message(Role.TOOL, (Text("no"),), call_id="c1")]
    body, dropped = sent(ModelCall("m", (USER, Message(Role.ASSISTANT, calls=calls), *answers, USER)))
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iQ=="}}
    assert body["messages"][2:] == [
        {"role": "tool", "tool_call_id": "c0", "content": "seen"},
        {"role": "tool", "tool_call_id": "c1", "content": "no"},
        {"role": "user", "content": [picture]},
        {"role": "user", "content": "hi"},
    ]
    assert dropped == []


def test_what_chat_completions_have_no_place_for_is_named():
    system = Message(Role.SYSTEM, (Text("s"), Image(url="https://x/y.png")))
    reply = Message(
        Role.ASSISTANT, (Text("a"),), thinking=(ThinkingBlock("redacted_thinking", 0, data="d"),),
        server_blocks=(ServerBlock(1, "{}"),), vendor_model=OURS,
    )  # fmt: skip
    body, dropped = sent(ModelCall("m", (system, USER, reply, USER), vendor_model=OURS))
    assert body["messages"][0] == {"role": "system", "content": "s"}
    assert body["messages"][2] == {"role": "assistant", "content": "a"}
    assert dropped == ["images", "thinking", "server_blocks"]


MARKED = Message(Role.USER, (Text("hi", cache=True),))


def test_marks_go_to_services_that_take_them_and_are_named_elsewhere():
    call = ModelCall("m", (MARKED,), tools=(ToolSpec("look", "", {}, cache=True),))
    mark = {"cache_control": {"type": "ephemeral"}}
    body, dropped = sent(call, ChatWire(ThinkTags.ANYWHERE, marks=True))
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi", **mark}]}]
    assert body["tools"][0]["cache_control"] == mark["cache_control"]
    assert dropped == []

    body, dropped = sent(call)
    assert "cache_control" not in json.dumps(body)
    assert dropped == ["cache"]


def test_a_mark_changes_no_content_when_it_moves_on():
    def texts(*, marked: bool) -> tuple[Message, ...]:
        system, answer = (Text("s"),), (Text("42", cache=marked),)
        reply = Message(Role.ASSISTANT, (Text("a"),), calls=(ToolCall("look", "{}", 0, "c0"),))
        said = (Message(Role.SYSTEM, system), Message(Role.USER, (Text("hi", cache=not marked),)))
        return (*said, reply, Message(Role.TOOL, answer, call_id="c0"))

    wire = ChatWire(ThinkTags.ANYWHERE, marks=True)
    first, second = (sent(ModelCall("m", texts(marked=marked)), wire)[0]["messages"] for marked in (False, True))
    mark = {"cache_control": {"type": "ephemeral"}}
    assert first[1]["content"] == [{"type": "text", "text": "hi", **mark}]
    assert second[1]["content"] == [{"type": "text", "text": "hi"}]
    assert second[3] == {**first[3], **mark}
    assert first[0]["content"] == second[0]["content"] == [{"type": "text", "text": "s"}]
    assert first[2] == second[2]


def test_a_signature_of_a_call_goes_back_with_it():
    # RD08
    signed = {"google": {"thought_signature": "c2ln"}}
    call = ToolCall("look", "{}", 0, "c0", signature=json.dumps(signed))
    body, _ = sent(ModelCall("m", (Message(Role.ASSISTANT, calls=(call,), vendor_model=OURS),), vendor_model=OURS))
    assert body["messages"][0]["tool_calls"][0]["extra_content"] == signed
    assert body["messages"][0]["content"] is None


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("Unsupported parameter: 'stop' is not supported with this model.", "stop"),
        ("Argument not supported on this model: stop", "stop"),
        ("This response_format type is unavailable now: invalid", "response_format"),
        ("Unknown parameter: parallel_tool_calls", "tool_choice"),
        ("The 'metadata' parameter is only allowed when 'store' is enabled.", "metadata"),
        ("Unsupported value: 'temperature' does not support 0.5 with this model.", "temperature"),
        ("Use 'max_completion_tokens' instead.", "max_tokens"),
        ("Unrecognized request argument supplied: reasoning_effort", "reasoning"),
        ("cache_control: Extra inputs are not permitted", "cache"),
        ("tools are not supported", None),
    ],
)
def test_a_refused_field_gives_way_once(message, field):
    call = ModelCall(
        "m", (MARKED,), 0.5, 9, tools=(TOOL,), tool_choice=ToolChoice(single=True), stop=("x",),
        response_format=ResponseFormat(), reasoning=Reasoning("low"), metadata={"user": "u"},
    )  # fmt: skip
    wire = ChatWire(ThinkTags.ANYWHERE, marks=True)
    answer = json.dumps({"error": {"message": message}}).encode()
    assert wire.refused_field(400, answer, call, frozenset()) == field
    if field is not None:
        whole, less = (wire.request(call, without).body for without in (frozenset(), {field}))
        assert len(less) < len(whole) or field == "max_tokens"
        assert wire.refused_field(400, answer, call, {field}) is None
        assert wire.refused_field(400, answer, ModelCall("m", (USER,)), frozenset()) is None

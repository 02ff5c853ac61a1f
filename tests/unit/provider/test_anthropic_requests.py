"""Requests of Anthropic's Messages: every recorded one comes out of our own terms again, and each of our terms goes in."""

import json
from typing import Any

import pytest
from turnwright_values.replies import ServerBlock, ThinkingBlock, ToolCall

from cases import NEEDS_SHARED, expect
from turnwright_core.chat.message import Image, Message, Role, Text, text_message
from turnwright_core.models import Reasoning, ToolChoice
from turnwright_provider.domain.model_call import ModelCall, ResponseFormat, ToolSpec
from turnwright_provider.domain.wires.anthropic import OUTPUT_TOKENS, OUTPUT_TOKENS_LEAST, AnthropicWire
from unit.provider.anthropic_replies import is_message
from unit.provider.anthropic_requests import OURS, call_of, has_a_place, normal
from unit.provider.recorded import recorded, request_of

# What was refused as it was need not come out again.
ASKED = {
    i: c for i, c in recorded(api="anthropic.messages").items() if is_message(c) and c["response"]["status"] != 400
}
BODIES = {i: body for i, case in ASKED.items() if (body := request_of(case)) and body.get("messages")}
REQUESTS = {i: body for i, body in BODIES.items() if has_a_place(body)}
EXCEPTIONS: dict[str, str] = {}

USER = text_message(Role.USER, "hi")
TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})
THOUGHT = ThinkingBlock("thinking", 0, text="hm", signature="s")


@pytest.mark.parametrize("case_id", REQUESTS)
def test_a_recorded_request_comes_out_of_its_call_again(case_id):
    body = REQUESTS[case_id]
    request = AnthropicWire().request(call_of(body), frozenset())
    expect(case_id, passed=normal(json.loads(request.body)) == normal(body), exceptions=EXCEPTIONS)
    assert request.dropped == ()


@NEEDS_SHARED
def test_the_recorded_requests_hold_what_requests_can_hold():
    told = json.dumps(list(REQUESTS.values()))
    assert len(REQUESTS) >= 0.75 * len(BODIES)
    for word in ("image", "tool_result", "thinking", "server_tool_use", "cache_control", "json_schema", "is_error"):
        assert f'"{word}"' in told


def sent(call: ModelCall, *without: str, amount: Reasoning | None = None) -> tuple[dict[str, Any], list[str]]:
    request = AnthropicWire(amount=amount).request(call, frozenset(without))
    assert request.path == "/messages"
    return json.loads(request.body), [one.field for one in request.dropped]


def turns(*messages: Message, vendor_model: str = OURS) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sent(ModelCall("m", messages, vendor_model=vendor_model))[0]["messages"]
    return found


def test_every_field_of_a_call_has_its_place():
    call = ModelCall(
        "m", (text_message(Role.SYSTEM, "be brief"), USER), 0.5, 9, tools=(TOOL,),
        tool_choice=ToolChoice("required", single=True), stop=("x",), response_format=ResponseFormat({"type": "object"}),
        metadata={"user_id": "u"}, extra={"top_k": 7, "metadata": {"more": "m"}},
    )  # fmt: skip
    assert sent(call) == (
        {
            "model": "m",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            "stream": True,
            "system": [{"type": "text", "text": "be brief"}],
            "stop_sequences": ["x"],
            "tools": [{"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            "temperature": 0.5,
            "metadata": {"user_id": "u", "more": "m"},
            "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
            "top_k": 7,
        },
        [],
    )


def test_a_call_that_says_nothing_says_only_what_is_required():
    assert sent(ModelCall("m", (USER,)))[0].keys() == {"model", "max_tokens", "messages", "stream"}


@pytest.mark.parametrize(
    ("choice", "wired"),
    [
        (ToolChoice(), {"type": "auto"}),
        (ToolChoice("none", single=True), {"type": "none"}),
        (ToolChoice("required"), {"type": "any"}),
        (ToolChoice(tool="look"), {"type": "tool", "name": "look"}),
        (ToolChoice(tool="look", single=True), {"type": "tool", "name": "look", "disable_parallel_tool_use": True}),
        (ToolChoice(single=True), {"type": "auto", "disable_parallel_tool_use": True}),
    ],
)
def test_a_choice_of_tools_has_its_word(choice, wired):
    assert sent(ModelCall("m", (USER,), tools=(TOOL,), tool_choice=choice))[0]["tool_choice"] == wired
    assert "tool_choice" not in sent(ModelCall("m", (USER,), tool_choice=choice))[0]


@pytest.mark.parametrize(
    ("image", "source"),
    [
        (Image("image/png", b"\x01\x02"), {"type": "base64", "media_type": "image/png", "data": "AQI="}),
        (Image(url="data:image/gif;base64,AQI="), {"type": "base64", "media_type": "image/gif", "data": "AQI="}),
        (Image(url="https://host/i.png"), {"type": "url", "url": "https://host/i.png"}),
    ],
)
def test_an_image_is_its_bytes_or_its_address(image, source):
    ((block,),) = [turn["content"] for turn in turns(Message(Role.USER, (image,)))]
    assert block == {"type": "image", "source": source}


def test_images_of_those_who_can_show_none_are_left_out_and_named():
    image = Image("image/png", b"\x01")
    messages = (Message(Role.SYSTEM, (image,)), USER, Message(Role.ASSISTANT, (Text("a"), image)))
    body, dropped = sent(ModelCall("m", messages))
    assert (dropped, b"image" in json.dumps(body).encode()) == (["images"], False)


def test_what_tools_answered_stands_first_in_one_turn_with_what_the_user_says_next():
    calls = (ToolCall("look", '{"a": 1}', id="x"), ToolCall("look", "", id="y", index=1))
    reply = Message(Role.ASSISTANT, (Text("I look."),), calls=calls)
    seen = Message(Role.TOOL, (Text("seen"), Image("image/png", b"\x01")), call_id="x")
    failed = Message(Role.TOOL, (Text("gone", cache=True),), call_id="y", failed=True)
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AQ=="}}

    assert turns(USER, reply, USER, seen, failed)[1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "x", "name": "look", "input": {"a": 1}},
                {"type": "tool_use", "id": "y", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text", "text": "seen"}, picture]},
                {
                    "type": "tool_result",
                    "tool_use_id": "y",
                    "content": [{"type": "text", "text": "gone"}],
                    "is_error": True,
                    "cache_control": {"type": "ephemeral"},
                },
                {"type": "text", "text": "hi"},
            ],
        },
    ]


@pytest.mark.parametrize("broken", ["", "{", '{"a":', "[1]", "null", "nonsense", "[" * 100_000, '{"a":1}}'])
def test_arguments_that_are_no_object_go_back_as_an_empty_one(broken):
    reply = Message(Role.ASSISTANT, calls=(ToolCall("t", broken, id="x"),))
    assert turns(USER, reply)[1]["content"][0]["input"] == {}


def test_ids_and_names_of_other_vendors_are_written_in_the_letters_that_are_taken():
    reply = Message(Role.ASSISTANT, calls=(ToolCall("my.tool", "{}", id="functions.x:0"),))
    _, said, answered = turns(USER, reply, Message(Role.TOOL, (Text("r"),), call_id="functions.x:0"))
    assert (said["content"][0]["id"], said["content"][0]["name"]) == ("functions_x_0", "my_tool")
    assert answered["content"][0]["tool_use_id"] == "functions_x_0"


REPLY = Message(
    Role.ASSISTANT,
    (Text("found"),),
    calls=(ToolCall("look", "{}", id="x", signature='{"type":"code_execution_20250825","tool_id":"s"}', block=5),),
    thinking=(THOUGHT, ThinkingBlock("redacted_thinking", 1, data="d")),
    server_blocks=(ServerBlock(2, '{"type":"server_tool_use","id":"s"}'), ServerBlock(3, '{"type":"r"}')),
    citations=('{"type":"char_location","file_id":null,"cited_text":"c"}',),
    vendor_model=OURS,
)
ANSWER = Message(Role.TOOL, (Text("r"),), call_id="x")


def test_blocks_go_back_to_their_model_as_they_came_and_where_they_stood():
    # RD08
    body, dropped = sent(ModelCall("m", (USER, REPLY, ANSWER), vendor_model=OURS))
    assert body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "server_tool_use", "id": "s"},
        {"type": "r"},
        {"type": "text", "text": "found", "citations": [{"type": "char_location", "cited_text": "c"}]},
        {
            "type": "tool_use",
            "id": "x",
            "name": "look",
            "input": {},
            "caller": {"type": "code_execution_20250825", "tool_id": "s"},
        },
    ]
    assert dropped == []


def test_a_block_that_was_distinguished_from_its_text_goes_back_with_it():
    # RD08: as servers between us and Anthropic tell it
    signed = ThinkingBlock("thinking", 0, signature="s")
    reply = Message(Role.ASSISTANT, (Text("a"),), "I think.", thinking=(signed,), vendor_model=OURS)
    assert turns(USER, reply)[1]["content"][0] == {"type": "thinking", "thinking": "I think.", "signature": "s"}


def test_another_model_is_sent_the_text_and_the_calls_alone():
    body, dropped = sent(ModelCall("m", (USER, REPLY, ANSWER), vendor_model="anthropic/other"))
    assert body["messages"][1]["content"] == [
        {"type": "text", "text": "found"},
        {"type": "tool_use", "id": "x", "name": "look", "input": {}},
    ]
    assert dropped == ["server_blocks", "signatures", "thinking"]


def test_blocks_of_another_interface_of_the_same_model_are_left_out_and_named():
    reply = Message(Role.ASSISTANT, (Text("a"),), thinking=(ThinkingBlock("reasoning.text", 0),), vendor_model=OURS)
    assert sent(ModelCall("m", (USER, reply), vendor_model=OURS))[1] == ["thinking"]


def test_nothing_that_is_only_space_is_sent():
    reply = Message(Role.ASSISTANT, (Text(" \n"),))
    call = ModelCall("m", (text_message(Role.SYSTEM, ""), USER, reply, text_message(Role.USER, " ")), stop=("\n", "x"))
    body, dropped = sent(call)
    assert (len(body["messages"]), "system" in body, body["stop_sequences"], dropped) == (1, False, ["x"], ["stop"])


# ---- Thinking


@pytest.mark.parametrize(
    ("amount", "limit", "thinking", "max_tokens"),
    [
        (Reasoning("medium"), None, {"type": "enabled", "budget_tokens": 8192}, 8192 + OUTPUT_TOKENS),
        (Reasoning("high"), 30_000, {"type": "enabled", "budget_tokens": 24576}, 30_000),
        (Reasoning("high"), 10_000, {"type": "enabled", "budget_tokens": 5000}, 10_000),
        (Reasoning(tokens=5), None, {"type": "enabled", "budget_tokens": 1024}, 1024 + OUTPUT_TOKENS),
        (Reasoning("off"), None, {"type": "disabled"}, OUTPUT_TOKENS),
        (Reasoning("high"), 1100, {"type": "enabled", "budget_tokens": 1024}, 1100),
        (Reasoning("low"), 1024, None, 1024),
        (None, None, None, OUTPUT_TOKENS),
    ],
)
def test_what_is_written_has_room_beside_what_is_thought(amount, limit, thinking, max_tokens):
    body, dropped = sent(ModelCall("m", (USER,), output_tokens_max=limit, reasoning=amount))
    assert (body.get("thinking"), body["max_tokens"]) == (thinking, max_tokens)
    assert dropped == ([] if thinking or amount is None else ["reasoning"])


def test_a_setting_asks_for_thinking_where_a_call_does_not_say():
    assert sent(ModelCall("m", (USER,)), amount=Reasoning("low"))[0]["thinking"]["budget_tokens"] == 1024
    off = ModelCall("m", (USER,), reasoning=Reasoning("off"))
    assert sent(off, amount=Reasoning("low"))[0]["thinking"] == {"type": "disabled"}


@pytest.mark.parametrize(
    ("temperature", "amount", "is_sent"),
    [(0.5, None, True), (0.5, "off", True), (0.5, "low", False), (1.0, "low", True), (1.5, None, False)],
)
def test_a_temperature_that_cannot_be_had_is_left_out_and_named(temperature, amount, is_sent):
    call = ModelCall("m", (USER,), temperature, reasoning=amount and Reasoning(amount))
    body, dropped = sent(call)
    assert (body.get("temperature"), dropped) == ((temperature, []) if is_sent else (None, ["temperature"]))


@pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice(tool="look")])
@pytest.mark.parametrize("without", [(), ("budget_tokens",)])
def test_a_forced_call_goes_before_thinking(choice, without):
    call = ModelCall("m", (USER,), 0.5, tools=(TOOL,), tool_choice=choice, reasoning=Reasoning("low"))
    body, dropped = sent(call, *without)
    assert ("thinking" in body, body["temperature"], dropped) == (False, 0.5, ["reasoning"])


def test_what_a_setting_asks_for_and_cannot_be_had_is_not_named():
    call = ModelCall("m", (USER,), tools=(TOOL,), tool_choice=ToolChoice("required"))
    body, dropped = sent(call, amount=Reasoning("low"))
    assert ("thinking" in body, dropped) == (False, [])


def test_a_block_of_a_server_without_a_type_harms_nothing_of_ours():
    reply = Message(Role.ASSISTANT, server_blocks=(ServerBlock(0, '{"a":1}'),), calls=REPLY.calls, vendor_model=OURS)
    call = ModelCall("m", (USER, reply, ANSWER), reasoning=Reasoning("low"), vendor_model=OURS)
    assert sent(call)[0]["messages"][1]["content"][0] == {"a": 1}


@pytest.mark.parametrize(("thinking", "is_sent"), [((THOUGHT,), True), ((), False)])
def test_a_loop_of_tools_ends_with_thinking_as_it_began(thinking, is_sent):
    call = ToolCall("look", "{}", id="x", block=1)
    reply = Message(Role.ASSISTANT, calls=(call,), thinking=thinking, vendor_model=OURS)
    asked = ModelCall("m", (USER, reply, ANSWER), reasoning=Reasoning("low"), vendor_model=OURS)
    body, dropped = sent(asked)
    assert ("thinking" in body, dropped) == (is_sent, [] if is_sent else ["reasoning"])
    assert "thinking" in sent(ModelCall("m", (USER, reply, USER), reasoning=Reasoning("low"), vendor_model=OURS))[0]


# ---- What gives way


CALL = ModelCall(
    "m", (USER,), 1.0, tools=(ToolSpec("t", "", {}, strict=True),), response_format=ResponseFormat({"type": "object"}),
    reasoning=Reasoning("high"),
)  # fmt: skip


def refusal(message: str) -> bytes:
    return json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": message}}).encode()


@pytest.mark.parametrize(
    ("message", "without", "field"),
    [
        ("`temperature` is deprecated for this model.", (), "temperature"),
        (
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".',
            (),
            "budget_tokens",
        ),
        ("adaptive thinking is not supported on this model", ("budget_tokens",), "reasoning"),
        ("This model does not support effort level 'high'.", ("budget_tokens",), "reasoning"),
        ("thinking: Extra inputs are not permitted", (), "reasoning"),
        ("'claude' does not support output_config.format", (), "response_format"),
        ("tools.0.custom.strict: Extra inputs are not permitted", (), "strict"),
        ("tools.0.custom.strict: Extra inputs are not permitted", ("strict",), None),
        ("max_tokens: 32768 > 4096, which is the maximum allowed number of output tokens for m", (), "max_tokens"),
        ("max_tokens: 32768 > 4096, which is the maximum allowed number of output tokens for m", ("max_tokens",), None),
        ("messages.1.content.0: Invalid `signature` in `thinking` block", (), None),
        ("prompt is too long: 213462 tokens > 200000 maximum", (), None),
    ],
)
def test_a_refused_field_gives_way_once(message, without, field):
    assert AnthropicWire().refused_field(400, refusal(message), CALL, frozenset(without)) == field


def test_a_limit_of_the_callers_own_does_not_give_way():
    message = "max_tokens: 9 > 8, which is the maximum allowed number of output tokens for m"
    call = ModelCall("m", (USER,), output_tokens_max=9)
    assert AnthropicWire().refused_field(400, refusal(message), call, frozenset()) is None


def test_what_gave_way_is_not_sent_or_has_another_form():
    assert sent(CALL)[0].keys() >= {"temperature", "thinking", "output_config"}
    assert sent(CALL, "max_tokens")[0]["max_tokens"] == 24576 + OUTPUT_TOKENS_LEAST
    assert "strict" not in sent(CALL, "strict")[0]["tools"][0]
    assert "temperature" not in sent(CALL, "temperature")[0]
    assert "thinking" not in sent(CALL, "reasoning")[0]
    assert "output_config" not in sent(CALL, "response_format")[0]
    body, _ = sent(CALL, "budget_tokens")
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"].keys() == {"effort", "format"}
    assert body["output_config"]["effort"] == "high"


def test_json_without_a_schema_and_words_without_a_name_are_left_out_and_named():
    call = ModelCall("m", (USER,), response_format=ResponseFormat(), metadata={"user_id": "u", "team": "t"})
    body, dropped = sent(call)
    assert (body["metadata"], dropped) == ({"user_id": "u"}, ["metadata", "response_format"])


def test_halves_of_characters_are_sent_as_none():
    request = AnthropicWire().request(ModelCall("m", (text_message(Role.USER, "a\ud800"),)), frozenset())
    assert json.loads(request.body)["messages"][0]["content"][0]["text"] == "a?"


def test_a_key_is_sent_in_a_header_of_its_own_and_none_where_there_is_none():
    wire = AnthropicWire()
    assert wire.headers("k") == {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    assert wire.headers("") == {"anthropic-version": "2023-06-01"}

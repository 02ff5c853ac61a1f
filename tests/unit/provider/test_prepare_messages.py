"""Earlier messages as a model can be sent them: whose blocks go back, and by which ids answers find their calls."""

import json

import pytest
from msgspec.structs import replace
from turnwright_values.replies import ServerBlock, ThinkingBlock, ToolCall

from cases import params
from turnwright_core.chat.message import Message, Role, Text, text_message
from turnwright_provider.domain.model_call import ModelCall
from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.wires.anthropic import AnthropicWire
from turnwright_provider.domain.wires.chat import ChatWire
from turnwright_provider.domain.wires.gemini import GeminiWire
from turnwright_provider.domain.wires.ollama import OllamaWire
from turnwright_provider.domain.wires.prepare_messages import prepare_messages
from turnwright_provider.domain.wires.responses import ResponsesWire

USER = text_message(Role.USER, "hi")
WIRES = {
    "chat": ChatWire(ThinkTags.ANYWHERE),
    "responses": ResponsesWire(),
    "anthropic": AnthropicWire(),
    "gemini": GeminiWire(),
    "ollama": OllamaWire(),
}


def reply(*calls: ToolCall, vendor_model: str = "v/m", **more: object) -> Message:
    return Message(Role.ASSISTANT, (Text("a"),), calls=calls, vendor_model=vendor_model, **more)


def sent(*messages: Message, vendor_model: str = "v/m"):
    return prepare_messages(ModelCall("m", messages, vendor_model=vendor_model))


OPAQUE = reply(
    ToolCall("t", "{}", id="x", signature="s"),
    thinking=(ThinkingBlock("thinking", 0, text="t", signature="s"),),
    server_blocks=(ServerBlock(1, "{}"),),
)


def test_blocks_and_signatures_go_back_to_the_model_that_wrote_them():
    # RD08
    assert sent(USER, OPAQUE) == ([USER, OPAQUE], {})


@pytest.mark.parametrize("vendor_model", ["v/other", ""])
def test_another_model_gets_none_of_them_and_each_is_named_once(vendor_model):
    messages, dropped = sent(USER, OPAQUE, OPAQUE, vendor_model=vendor_model)
    assert messages[1] == reply(ToolCall("t", "{}", id="x"))
    assert list(dropped) == ["server_blocks", "signatures", "thinking"]


def test_where_a_text_stood_is_nothing_that_another_model_lacks():
    told = reply(thinking=(ThinkingBlock("text", 0, data="0:1:0"),))
    messages, dropped = sent(told, vendor_model="v/other")
    assert (messages[0].thinking, dropped) == ((), {})


def test_what_nobody_is_known_to_have_written_goes_to_no_model():
    unknown = reply(thinking=OPAQUE.thinking, vendor_model="")
    assert list(sent(unknown, vendor_model="")[1]) == ["thinking"]


@pytest.mark.parametrize(
    ("call", "answered", "expected"),
    [
        (ToolCall("t", "{}", id="theirs", call_id="ours"), "ours", "theirs"),
        (ToolCall("t", "{}", id="theirs", call_id="ours"), "theirs", "theirs"),
        (ToolCall("t", "{}", call_id="ours"), "ours", "ours"),
        (ToolCall("t", "{}", id="theirs"), "theirs", "theirs"),
    ],
)
def test_an_answer_names_the_id_that_is_sent_for_its_call(call, answered, expected):
    messages, _ = sent(reply(call), Message(Role.TOOL, (Text("r"),), call_id=answered))
    assert (messages[0].calls[0].id, messages[1].call_id) == (expected, expected)


def test_an_id_that_a_vendor_gives_again_gives_way_to_ours_and_what_was_sent_stays():
    first, second = (ToolCall("t", "{}", id="t:0", call_id=ours) for ours in ("call_1_0", "call_2_0"))
    answers = [Message(Role.TOOL, call_id=ours) for ours in ("call_1_0", "call_2_0")]
    messages, _ = sent(reply(first), answers[0], reply(second), answers[1])
    assert [message.calls[0].id for message in messages[::2]] == ["t:0", "call_2_0"]
    assert [message.call_id for message in messages[1::2]] == ["t:0", "call_2_0"]
    assert sent(reply(first), answers[0])[0] == messages[:2]


@pytest.mark.parametrize(
    ("name", "expected"), [("é tool", "__tool"), ("", "_"), ("x" * 65, "x" * 64), ("a-b_1", "a-b_1")]
)
def test_a_name_that_vendors_refuse_is_sent_in_characters_that_they_take(name, expected):
    said, answer = sent(reply(ToolCall(name, "{}", id="x")), Message(Role.TOOL, call_id="x", tool=name))[0]
    assert (said.calls[0].name, answer.tool) == (expected, expected if name else "")


def test_a_vendors_id_that_is_ours_of_another_call_is_told_from_it():
    first, second = (
        ToolCall("t", "{}", id="call_1_1", call_id="call_1_0"),
        ToolCall("t", "{}", id="x" * 41, call_id="call_1_1"),
    )
    results = (Message(Role.TOOL, call_id=f"call_1_{n}") for n in range(2))
    said, *answers = sent(reply(first, second), *results, vendor_model="v/other")[0]
    assert [call.id for call in said.calls] == [one.call_id for one in answers] == ["call_1_1", "call_1_1_"]


def test_an_id_that_is_longer_than_another_vendor_takes_gives_way_to_ours():
    # vLLM's have 46 characters, OpenAI takes 40
    long = ToolCall("t", "{}", id="chatcmpl-tool-" + "0" * 32, call_id="call_1_0")
    for vendor_model in ("v/other", ""):
        said, answer = sent(reply(long), Message(Role.TOOL, call_id="call_1_0"), vendor_model=vendor_model)[0]
        assert (said.calls[0].id, answer.call_id) == ("call_1_0", "call_1_0")
    assert sent(reply(replace(long, call_id="")), vendor_model="v/other")[0][0].calls[0].id == long.id


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
def test_a_long_id_goes_back_to_the_model_that_gave_it_as_it_was(wire):
    # A proxy puts a signature into it.
    given = "call_1__thought__" + "aB+/" * 3_000 + "=="
    called = reply(ToolCall("t", "{}", id=given, call_id="call_1_0"))
    answer = Message(Role.TOOL, (Text("r"),), call_id="call_1_0", tool="t")
    for vendor_model, expected in (("v/m", given), ("v/other", "call_1_0")):
        body = json.loads(wire.request(ModelCall("m", (USER, called, answer), vendor_model=vendor_model), set()).body)
        assert sorted(ids_in(body)) == [expected, expected]


def ids_in(value: object) -> list[str]:
    """The ids of calls anywhere in a request, once for the call and once for its answer."""
    if isinstance(value, list):
        return [one for item in value for one in ids_in(item)]
    if not isinstance(value, dict):
        return []
    named = [value[name] for name in ("id", "call_id", "tool_call_id", "tool_use_id") if name in value]
    return named + [one for item in value.values() for one in ids_in(item)]


@pytest.mark.parametrize("case", params("refact/normalize_tool_call.jsonl"))
def test_a_case_of_arguments_is_sent_as_an_object(case):
    given, wanted = case["input"].get("function"), case["expected"]
    if wanted is None:
        return  # a call without a name, which no message holds
    call = ToolCall(given["name"], given.get("arguments") or "", id=given.get("id", "x"))
    assert sent(reply(call))[0][0].calls[0].arguments == wanted["function"]["arguments"]


@pytest.mark.parametrize(
    "arguments", ["", "null", '{"a":', '"x"', "{'a': 1}", '{"a": 1} more', "[" * 100_000, '{"\ud83d']
)
def test_arguments_that_are_no_object_are_sent_as_an_empty_one(arguments):
    assert sent(reply(ToolCall("t", arguments, id="x")))[0][0].calls[0].arguments == "{}"


def test_arguments_that_are_an_object_are_sent_as_they_were_written():
    written = ' {"a" : 1.0, "b": "\u00e9", "a": [2]}\n'
    assert sent(reply(ToolCall("t", written, id="x")))[0][0].calls[0].arguments == written


def test_every_call_has_an_id():
    messages, _ = sent(reply(ToolCall("t", "{}"), ToolCall("t", "{}", 1)), reply(ToolCall("t", "{}")))
    assert len({call.id for message in messages for call in message.calls}) == 3

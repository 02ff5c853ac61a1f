"""Ollama's own interface: every recorded request comes out of our own terms again, each of our terms goes in, and what
its replies may hold.
"""

import base64
import json
from typing import Any

import pytest
from turnwright_values.provider import Finish
from turnwright_values.replies import ThinkingBlock, ToolCall

from turnwright_core.chat.message import Image, Message, Part, Role, Text, text_message
from turnwright_core.models import Reasoning, ToolChoice
from turnwright_provider.domain.failures import FailureClass, VendorError
from turnwright_provider.domain.model_call import ModelCall, ResponseFormat, ToolSpec, was_cut
from turnwright_provider.domain.model_info import ModelInfo
from turnwright_provider.domain.model_list import parse_model_list
from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.wires.ollama import OllamaWire
from unit.provider import recorded
from unit.provider.google_and_ollama import folded_by

OURS = "v/m"
WIRE = OllamaWire(ThinkTags.LEADING)

REQUESTS = {i: body for i, case in recorded.recorded(api="ollama.chat").items() if (body := recorded.request_of(case))}
_NAMED = {"model", "messages", "tools", "format", "think", "options", "stream"}
_OPTIONS = {
    "temperature": "temperature",
    "num_predict": "output_tokens_max",
    "num_ctx": "context_length",
    "stop": "stop",
}


def call_of(body: dict[str, Any]) -> ModelCall:
    """The call that a recorded request makes; fields that we have no name for are its `extra`."""
    options = body.get("options") or {}
    named = {_OPTIONS[name]: value for name, value in options.items() if name in _OPTIONS}
    extra: dict[str, Any] = {name: value for name, value in body.items() if name not in _NAMED}
    if rest := {name: value for name, value in options.items() if name not in _OPTIONS}:
        extra["options"] = rest
    form, think = body.get("format"), body.get("think")
    return ModelCall(
        body["model"],
        tuple(_message(place, message) for place, message in enumerate(body["messages"])),
        tools=tuple(
            ToolSpec(one["function"]["name"], one["function"].get("description", ""), one["function"]["parameters"])
            for one in body.get("tools") or ()
        ),
        response_format=ResponseFormat(form if isinstance(form, dict) else None) if form else None,
        reasoning=None if think is None else Reasoning({True: "medium", False: "off"}.get(think, think)),
        extra=extra,
        vendor_model=OURS,
        **named,
    )


def _message(place: int, message: dict[str, Any]) -> Message:
    images = [Image("image/png", base64.b64decode(one)) for one in message.get("images") or ()]
    text: tuple[Part, ...] = (Text(message["content"]),) if message.get("content") else ()
    called = enumerate(message.get("tool_calls") or ())
    calls = tuple(
        ToolCall(c["function"]["name"], json.dumps(c["function"]["arguments"]), n, c.get("id", ""), f"c{place}_{n}")
        for n, c in called
    )
    return Message(
        Role(message["role"]), (*text, *images), message.get("thinking", ""), calls, vendor_model=OURS,
        call_id=message.get("tool_call_id", ""), tool=message.get("tool_name", ""),
    )  # fmt: skip


def normal(body: dict[str, Any]) -> dict[str, Any]:
    """A request without the differences that mean nothing."""
    # Ours are always streamed, and refused where they are too long; what is empty is as good as absent.
    ours = ("stream", "truncate", "shift")
    kept = {n: value for n, value in body.items() if n not in ours and value not in (None, "", [], {})}
    kept["think"] = {True: "medium"}.get(body.get("think"), body.get("think"))
    kept["messages"] = [
        {name: value for name, value in message.items() if value not in (None, "", []) and name != "tool_call_id"}
        for message in body["messages"]
    ]
    for message in kept["messages"]:
        # Ids and indexes came later than calls.
        for call in message.get("tool_calls", ()):
            call.pop("id", None)
            call["function"].pop("index", None)
    return kept


@pytest.mark.parametrize("case_id", REQUESTS)
def test_a_recorded_request_comes_out_of_its_call_again(case_id):
    body = REQUESTS[case_id]
    request = WIRE.request(call_of(body), frozenset())
    assert normal(json.loads(request.body)) == normal(json.loads(json.dumps(body)))
    assert request.dropped == ()


USER = text_message(Role.USER, "hi")
TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})


def sent(call: ModelCall, *without: str) -> tuple[dict[str, Any], list[str]]:
    request = WIRE.request(call, frozenset(without))
    return json.loads(request.body), [one.field for one in request.dropped]


def test_every_field_of_a_call_has_its_place():
    call = ModelCall(
        "m", (USER,), 0.5, 9, tools=(TOOL,), tool_choice=ToolChoice(), stop=("x",),
        response_format=ResponseFormat({"type": "object"}), reasoning=Reasoning("low"), info=ModelInfo(4096),
        extra={"keep_alive": "1h", "options": {"seed": 7}},
    )  # fmt: skip
    assert WIRE.request(call, frozenset()).path == "/api/chat"
    assert sent(call) == (
        {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "truncate": False,
            "shift": False,
            "options": {"temperature": 0.5, "num_predict": 9, "stop": ["x"], "num_ctx": 4096, "seed": 7},
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "look",
                        "description": "Looks.",
                        "parameters": {"type": "object", "properties": {}},
                    },
                }
            ],
            "think": "low",
            "format": {"type": "object"},
            "keep_alive": "1h",
        },
        [],
    )


@pytest.mark.parametrize(
    ("amount", "think"), [(Reasoning("off"), False), (Reasoning("high"), "high"), (Reasoning(tokens=9000), "medium")]
)
def test_reasoning_is_asked_for_by_its_word(amount, think):
    assert sent(ModelCall("m", (USER,), reasoning=amount))[0]["think"] == think


def test_what_ollama_has_no_place_for_is_named():
    parts = (Text("hi", cache=True), Image(url="https://x/y.png"), Image("image/png", b"\x89"))
    signed = ToolCall("look", "{}", 0, "c", signature="s")
    thought = ThinkingBlock("thinking", 0, text="hm", signature="s")
    reply = Message(Role.ASSISTANT, calls=(signed,), thinking=(thought,), vendor_model=OURS)
    call = ModelCall(
        "m", (Message(Role.USER, parts), reply), tools=(TOOL,), tool_choice=ToolChoice(tool="look"),
        metadata={"user": "u"}, vendor_model=OURS,
    )  # fmt: skip
    body, dropped = sent(call)
    assert body["messages"][0] == {"role": "user", "content": "hi", "images": ["iQ=="]}
    assert sorted(dropped) == ["cache", "images", "metadata", "signatures", "thinking", "tool_choice"]


def test_a_message_of_nothing_but_an_image_at_an_address_is_refused():
    call = ModelCall("m", (Message(Role.USER, (Text(""), Image(url="https://x/y.png"))),))
    with pytest.raises(VendorError, match="as bytes or data: URLs") as refused:
        sent(call)
    assert refused.value.failure.kind is FailureClass.INVALID


def test_a_model_that_must_not_call_is_given_no_tools():
    body, dropped = sent(ModelCall("m", (USER,), tools=(TOOL,), tool_choice=ToolChoice("none")))
    assert ("tools" in body, dropped) == (False, [])


def test_calls_go_back_with_objects_and_are_answered_by_id_and_name():
    calls = (ToolCall("look", '{"at": 1}', 0, "", "call_1_0"), ToolCall("look", "{broken", 1, "x", "call_1_1"))
    reply = Message(Role.ASSISTANT, (Text("a"),), "hm", calls, vendor_model=OURS)
    answers = [Message(Role.TOOL, (Text("seen"),), call_id=name) for name in ("call_1_0", "call_1_1")]
    body, dropped = sent(ModelCall("m", (USER, reply, *answers), vendor_model=OURS))
    assert body["messages"][1:] == [
        {
            "role": "assistant",
            "content": "a",
            "thinking": "hm",
            "tool_calls": [
                {"id": "call_1_0", "function": {"index": 0, "name": "look", "arguments": {"at": 1}}},
                {"id": "x", "function": {"index": 1, "name": "look", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "seen", "tool_name": "look", "tool_call_id": "call_1_0"},
        {"role": "tool", "content": "seen", "tool_name": "look", "tool_call_id": "x"},
    ]
    assert dropped == []
    assert "thinking" not in sent(ModelCall("m", (USER, reply), vendor_model="v/other"))[0]["messages"][1]


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ('"llama3" does not support thinking', "reasoning"),
        ("json: cannot unmarshal string into Go struct field ChatRequest.think of type bool: invalid", "reasoning"),
        ("llama3 does not support tools", None),
    ],
)
def test_a_refused_field_gives_way_once(message, field):
    call = ModelCall("m", (USER,), tools=(TOOL,), reasoning=Reasoning("low"))
    answer = json.dumps({"error": message}).encode()
    assert WIRE.refused_field(400, answer, call, frozenset()) == field
    if field is not None:
        assert "think" not in sent(call, field)[0]
        assert WIRE.refused_field(400, answer, call, {field}) is None
        assert WIRE.refused_field(400, answer, ModelCall("m", (USER,)), frozenset()) is None


def test_the_list_of_models_is_read():
    listing = parse_model_list(
        json.dumps({"models": [{"name": "qwen3:8b", "model": "qwen3:8b"}, {"name": "llama3:latest"}]}).encode()
    )
    assert listing.listed_name("qwen3:8b")
    assert listing.listed_name("llama3") == "llama3:latest"
    assert listing.listed_name("other") is None


def stream(*lines: Any) -> recorded.Message:
    return folded_by(WIRE, [json.dumps(line).encode() + b"\n" for line in lines])


def said(done: str = "", **message: Any) -> dict[str, Any]:
    end = {"done": True, "done_reason": done} if done else {"done": False}
    return {"model": "m", "message": {"role": "assistant", "content": "", **message}, **end}


def test_calls_without_an_index_or_with_the_same_are_calls_of_their_own():
    def call(at: int, **more: Any) -> dict[str, Any]:
        return {"function": {"name": "look", "arguments": {"at": at}, **more}}

    message = stream(
        said(tool_calls=[call(1, index=0), call(2, index=0)]), said(tool_calls=[call(3, index=0)]), said("stop")
    )
    assert [one["arguments"] for one in message.tool_calls] == ['{"at":1}', '{"at":2}', '{"at":3}']


def test_thinking_is_reasoning_whether_it_is_distinguished_or_stands_in_tags():
    message = stream(said(thinking="a"), said(thinking="b"), said(content="c"), said("stop"))
    assert (message.reasoning, message.text) == ("ab", "c")
    message = stream(said(content="<thi"), said(content="nk>ab</think>c"), said("stop"))
    assert (message.reasoning, message.text) == ("ab", "c")


@pytest.mark.parametrize(
    ("end", "is_cut"),
    [({"done_reason": "stop"}, False), ({}, False), ({"done_reason": "length"}, True), ({"done_reason": "load"}, True)],
)
def test_a_reply_is_whole_only_where_the_model_ended_it(end, is_cut):
    fold = WIRE.fold()
    fold.whole({"message": {"content": "a"}, "done": True, **end})
    finish = fold.close()[-1]
    assert isinstance(finish, Finish)
    assert was_cut(finish) == is_cut


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ([{"error": "model runner has unexpectedly stopped"}], FailureClass.SERVER),
        ([said(content="a"), {"error": "the input length exceeds the context length"}], FailureClass.CONTEXT_EXCEEDED),
        ([said(content="a")], FailureClass.SERVER),
        ([], FailureClass.PROTOCOL),
        (["text"], FailureClass.PROTOCOL),
    ],
)
def test_what_goes_wrong_has_its_class(lines, kind):
    with pytest.raises(VendorError) as failed:
        stream(*lines)
    assert failed.value.failure.kind is kind


@pytest.mark.parametrize("body", [{"error": "no"}, {"done": True}, {"message": "text"}, [], None])
def test_a_body_that_is_no_reply_fails(body):
    with pytest.raises(VendorError):
        recorded.folded_whole(json.dumps(body).encode(), WIRE.fold())

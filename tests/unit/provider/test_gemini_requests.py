"""Requests of Gemini: every recorded one comes out of our own terms again, and each of our terms goes in."""

import json
from typing import Any

import pytest
from turnwright_values.replies import ToolCall

from cases import NEEDS_SHARED, expect
from turnwright_core.chat.message import Image, Message, Role, Text, text_message
from turnwright_core.models import Reasoning, ToolChoice
from turnwright_provider.domain.model_call import ModelCall, ResponseFormat, ToolSpec
from turnwright_provider.domain.wires.gemini import GeminiWire
from unit.provider.gemini_requests import OURS, call_of, camel, normal
from unit.provider.recorded import recorded, request_of

REQUESTS = {
    i: camel(body)
    for i, case in recorded(api="gemini.generate").items()
    if (body := request_of(case)) and body.get("contents")
}
EXCEPTIONS = {
    "vertex/opentelemetry_python_contrib_cassettes_test_generate_content_invalid_role_0": "a role that there is not, to "
    "see it refused"
}

USER = text_message(Role.USER, "hi")
TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})


@pytest.mark.parametrize("case_id", REQUESTS)
def test_a_recorded_request_comes_out_of_its_call_again(case_id):
    body = REQUESTS[case_id]
    request = GeminiWire().request(call_of(body), frozenset())
    expect(case_id, passed=normal(json.loads(request.body)) == normal(body), exceptions=EXCEPTIONS)
    assert request.dropped == ()


@NEEDS_SHARED
def test_the_recorded_requests_hold_what_requests_can_hold():
    told = json.dumps(list(REQUESTS.values()))
    assert len(REQUESTS) >= 35
    for word in ("thoughtSignature", "inlineData", "functionResponse", "thinkingConfig", "stopSequences", "toolConfig"):
        assert f'"{word}"' in told


def sent(call: ModelCall, *without: str) -> tuple[dict[str, Any], list[str]]:
    request = GeminiWire().request(call, frozenset(without))
    return json.loads(request.body), [one.field for one in request.dropped]


def test_every_field_of_a_call_has_its_place():
    call = ModelCall(
        "gemini-2.5-pro", (text_message(Role.SYSTEM, "s"), USER), 0.5, 9, tools=(TOOL,),
        tool_choice=ToolChoice("required"), stop=("x",), response_format=ResponseFormat({"type": "object"}),
        reasoning=Reasoning("low"), extra={"safetySettings": [], "generationConfig": {"seed": 7}},
    )  # fmt: skip
    assert GeminiWire().request(call, frozenset()).path == "/models/gemini-2.5-pro:streamGenerateContent?alt=sse"
    assert GeminiWire().headers("k") == {"x-goog-api-key": "k"}
    assert sent(call) == (
        {
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
            "systemInstruction": {"parts": [{"text": "s"}]},
            "tools": [
                {
                    "functionDeclarations": [
                        {
                            "name": "look",
                            "description": "Looks.",
                            "parametersJsonSchema": {"type": "object", "properties": {}},
                        }
                    ]
                }
            ],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
            "generationConfig": {
                "temperature": 0.5,
                "maxOutputTokens": 9,
                "stopSequences": ["x"],
                "thinkingConfig": {"thinkingBudget": 1024, "includeThoughts": True},
                "responseMimeType": "application/json",
                "responseJsonSchema": {"type": "object"},
                "seed": 7,
            },
            "safetySettings": [],
        },
        [],
    )


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        (ToolChoice(), {"mode": "AUTO"}),
        (ToolChoice("none"), {"mode": "NONE"}),
        (ToolChoice(tool="look"), {"mode": "ANY", "allowedFunctionNames": ["look"]}),
    ],
)
def test_what_must_be_called_is_said(choice, config):
    body, dropped = sent(ModelCall("m", (USER,), tools=(TOOL,), tool_choice=choice))
    assert (body["toolConfig"], dropped) == ({"functionCallingConfig": config}, [])


def test_a_model_that_is_not_to_reason_is_given_no_tokens_for_it():
    body, _ = sent(ModelCall("m", (USER,), reasoning=Reasoning("off")))
    assert body["generationConfig"] == {"thinkingConfig": {"thinkingBudget": 0}}


def test_what_gemini_has_no_place_for_is_named():
    marked = Message(Role.USER, (Text("hi", cache=True),))
    system = Message(Role.SYSTEM, (Text("s"), Image("image/png", b"\x89")))
    call = ModelCall(
        "m", (system, marked), tools=(TOOL,), tool_choice=ToolChoice("required", single=True), metadata={"user": "u"}
    )
    body, dropped = sent(call)
    assert body["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]
    assert sorted(dropped) == ["cache", "images", "metadata", "tool_choice"]


def test_images_are_sent_with_their_type_or_their_address():
    parts = (Image("image/png", b"\x89"), Image(url="data:image/gif;base64,iQ=="), Image(url="https://x/y.png?z"))
    body, dropped = sent(ModelCall("m", (Message(Role.USER, parts),)))
    assert body["contents"][0]["parts"] == [
        {"inlineData": {"mimeType": "image/png", "data": "iQ=="}},
        {"inlineData": {"mimeType": "image/gif", "data": "iQ=="}},
        {"fileData": {"fileUri": "https://x/y.png?z", "mimeType": "image/png"}},
    ]
    assert dropped == []


def test_calls_are_answered_by_name_in_the_turn_behind_them():
    calls = (ToolCall("look", '{"at": 1}', 0, "", "call_1_0"), ToolCall("look", "{broken", 1, "", "call_1_1"))
    answers = [
        Message(Role.TOOL, (Text("seen"),), call_id="call_1_0"),
        Message(Role.TOOL, (Text("no"),), call_id="call_1_1", failed=True),
    ]
    body, _ = sent(ModelCall("m", (USER, Message(Role.ASSISTANT, calls=calls), *answers, USER)))
    assert body["contents"][1:] == [
        {
            "role": "model",
            "parts": [
                {"functionCall": {"id": "call_1_0", "name": "look", "args": {"at": 1}}},
                {"functionCall": {"id": "call_1_1", "name": "look", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "call_1_0", "name": "look", "response": {"result": "seen"}}},
                {"functionResponse": {"id": "call_1_1", "name": "look", "response": {"error": "no"}}},
                {"text": "hi"},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("model", "signature"), [("gemini-3-pro-preview", "skip_thought_signature_validator"), ("gemini-2.5-pro", None)]
)
def test_a_call_of_another_model_is_signed_where_the_model_insists(model, signature):
    calls = (ToolCall("look", "{}", 0, "a", signature="theirs"), ToolCall("look", "{}", 1, "b"))
    reply = Message(Role.ASSISTANT, calls=calls, vendor_model="other/m")
    body, dropped = sent(ModelCall(model, (USER, reply), vendor_model=OURS))
    assert [part.get("thoughtSignature") for part in body["contents"][1]["parts"]] == [signature, None]
    assert dropped == ["signatures"]


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("Thinking is not supported for this model.", "reasoning"),
        ("Budget 0 is invalid. This model only works in thinking mode.", "reasoning"),
        ("Function calling with a response mime type: 'application/json' is unsupported", "response_format"),
        ("Developer instruction is not enabled for models/gemma-3-27b-it: unsupported", "system"),
        ("API key not valid. Please pass a valid API key.", None),
    ],
)
def test_a_refused_field_gives_way_once(message, field):
    call = ModelCall(
        "m", (text_message(Role.SYSTEM, "s"), USER), response_format=ResponseFormat(), reasoning=Reasoning("off")
    )
    wire = GeminiWire()
    answer = json.dumps({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}).encode()
    assert wire.refused_field(400, answer, call, frozenset()) == field
    if field is not None:
        assert len(wire.request(call, {field}).body) < len(wire.request(call, frozenset()).body)
        assert wire.refused_field(400, answer, call, {field}) is None
        assert wire.refused_field(400, answer, ModelCall("m", (USER,)), frozenset()) is None

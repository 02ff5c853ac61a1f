"""Replies of Gemini beyond text: signatures that go back, blocks of Google's tools, sources, and what goes wrong."""

import json
from typing import Any

import pytest
from turnwright_values.provider import Finish
from turnwright_values.replies import ServerBlock, ThinkingBlock
from turnwright_values.types import Usage

from cases import NEEDS_SHARED
from turnwright_core.chat.message import Message as Sent
from turnwright_provider.domain.failures import FailureClass, VendorError
from turnwright_provider.domain.model_call import ModelCall, was_cut
from turnwright_provider.domain.wires.gemini import GeminiWire
from turnwright_provider.domain.wires.gemini_reply import KEPT_CHARS_MAX, GeminiFold
from unit.provider.google_and_ollama import OK, folded_by, reply_of
from unit.provider.recorded import Message, body_of, folded_whole

WIRE = GeminiWire()


def chunk(*parts: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, **({"finishReason": finish} if finish else {})}
    return {"candidates": [candidate], **more}


def stream(*chunks: Any) -> Message:
    return folded_by(WIRE, [b"data: " + json.dumps(one).encode() + b"\r\n\r\n" for one in chunks])


def sent_back(message: Sent, model: str = "v/m") -> list[dict[str, Any]]:
    body = json.loads(WIRE.request(ModelCall("m", (message,), vendor_model=model), frozenset()).body)
    parts: list[dict[str, Any]] = body["contents"][0]["parts"]
    return parts


GEMINI = {i: case for i, case in OK.items() if case["api"] == "gemini.generate"}


def signatures(parts: list[dict[str, Any]]) -> list[str]:
    return [part["thoughtSignature"] for part in parts if "thoughtSignature" in part]


@pytest.mark.parametrize("case_id", GEMINI)
def test_the_signatures_of_a_recorded_reply_go_back_at_their_places(case_id):
    # RD08
    body = body_of(GEMINI[case_id]).decode()
    lines = [line[5:] for line in body.splitlines() if line.startswith("data:")]
    chunks = [json.loads(line) for line in lines] or [json.loads(body)]
    parts = [part for one in chunks for part in one["candidates"][0].get("content", {}).get("parts", ())]
    message = reply_of(GEMINI[case_id]).message
    if not any((message.parts, message.calls, message.thinking, message.server_blocks)):
        return
    back = sent_back(message)
    assert signatures(back) == signatures(parts)
    assert "".join(part.get("text", "") for part in back) == message.text
    # A signature is on the part that it came with: the text of a signed part, and nothing else, is signed again.
    signed = [
        (part["text"], part["thoughtSignature"]) for part in parts if "text" in part and "thoughtSignature" in part
    ]
    assert [
        (part["text"], part["thoughtSignature"]) for part in back if "text" in part and "thoughtSignature" in part
    ] == signed
    assert signatures(sent_back(message, "v/other")) == []


def test_text_thoughts_calls_and_blocks_go_back_in_their_order():
    code = {"executableCode": {"language": "PYTHON", "code": "1+1"}, "thoughtSignature": "s2"}
    message = stream(
        chunk({"text": "hm", "thought": True}),
        chunk({"text": "so", "thought": True, "thoughtSignature": "s1"}, {"text": "a"}),
        chunk({"text": "b"}, code, {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}),
        chunk({"text": "c", "thoughtSignature": "s3"}, {"text": "d"}, {"functionCall": {"name": "look"}}),
        chunk({"functionCall": {"name": "look", "args": {"at": 1}}, "thoughtSignature": "s4"}),
        chunk({"text": "", "thoughtSignature": "s5"}, finish="STOP"),
    )
    assert (message.text, message.reasoning) == ("abcd", "hmso")
    assert sent_back(message.message) == [
        {"text": "so", "thought": True, "thoughtSignature": "s1"},
        {"text": "ab"},
        code,
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}},
        {"text": "c", "thoughtSignature": "s3"},
        {"text": "d"},
        {"functionCall": {"id": "call_0_0", "name": "look", "args": {}}},
        {"functionCall": {"id": "call_0_1", "name": "look", "args": {"at": 1}}, "thoughtSignature": "s4"},
        {"text": "", "thoughtSignature": "s5"},
    ]


def test_a_signature_whose_text_is_not_reported_is_sent_on_an_empty_text():
    message = Sent(
        stream(chunk({"text": "a"}, finish="STOP")).message.role,
        thinking=(ThinkingBlock("text", 0, signature="s", data="x"),),
        vendor_model="v/m",
    )
    assert sent_back(message) == [{"text": "", "thoughtSignature": "s"}]


def piece(path: str, more: bool = True, **value: Any) -> dict[str, Any]:
    return {"functionCall": {"partialArgs": [{"jsonPath": path, **value}], **({"willContinue": True} if more else {})}}


def test_arguments_in_pieces_make_an_object():
    begin = {"functionCall": {"name": "look", "willContinue": True}, "thoughtSignature": "s"}
    message = stream(
        chunk(begin),
        chunk(piece("$.items[0].name", stringValue="ap", willContinue=True)),
        chunk(piece("$.items[0].name", stringValue="ple")),
        chunk(piece("$.items[0].price", numberValue=0.5), piece("$.items[1]['a key']", boolValue=True)),
        chunk(piece("$.none", nullValue="NULL_VALUE"), {"functionCall": {}}),
        chunk({"functionCall": {"name": "next", "willContinue": True}}),
        chunk(piece("$.a", stringValue="b"), finish="STOP"),
    )
    assert [(call["name"], json.loads(call["arguments"])) for call in message.tool_calls] == [
        ("look", {"items": [{"name": "apple", "price": 0.5}, {"a key": True}], "none": None}),
        ("next", {"a": "b"}),
    ]
    assert [call.signature for call in message.message.calls] == ["s", ""]


@pytest.mark.parametrize(
    "path",
    ["", "$", "$.a..b", "a.b", "$[0]", "$.a[999999]", "$.a[0][5]", "$" + ".a" * 5000, "$.x.y", "$.x[0]", "$['", 7],
)
def test_a_path_that_leads_nowhere_is_ignored(path):
    begin = {"functionCall": {"name": "look", "willContinue": True}}
    message = stream(chunk(begin, piece("$.x", stringValue="1")), chunk(piece(path, numberValue=2), finish="STOP"))
    assert json.loads(message.tool_calls[0]["arguments"])["x"] == "1"


@NEEDS_SHARED
def test_recorded_arguments_in_pieces_are_whole():
    calls = [call for case in GEMINI.values() if b"partialArgs" in body_of(case) for call in reply_of(case).tool_calls]
    assert {"id": "", "name": "read_screen", "arguments": '{"id":"A"}'} in calls
    written = next(json.loads(call["arguments"]) for call in calls if call["name"] == "writeItems")
    assert len(written["operations"]) >= 2
    assert all(operation["action"] == "add" for operation in written["operations"])


def test_sources_are_reported_once():
    source = {"web": {"uri": "https://x", "title": "X"}}
    told = chunk({"text": "a"}, finish="STOP")
    told["candidates"][0]["groundingMetadata"] = {"groundingChunks": [source, None, source]}
    assert [json.loads(one) for one in stream(told, told).whole.citations] == [source]


def test_what_googles_tools_read_and_thoughts_are_counted_with_the_others():
    # RD05
    usage = {
        "promptTokenCount": 3, "toolUsePromptTokenCount": 4, "cachedContentTokenCount": 2, "candidatesTokenCount": 5,
        "thoughtsTokenCount": 6, "totalTokenCount": 18, "trafficType": "ON_DEMAND",
    }  # fmt: skip
    message = stream(
        chunk(usageMetadata={"trafficType": "ON_DEMAND"}), chunk({"text": "a"}, finish="STOP", usageMetadata=usage)
    )
    assert message.usage == Usage(7, 2, 11, 6, 18)
    assert stream(chunk(finish="STOP", usageMetadata={"trafficType": "ON_DEMAND"})).usage is None


@pytest.mark.parametrize(
    ("reason", "is_cut"),
    [
        ("STOP", False),
        ("MAX_TOKENS", True),
        ("SAFETY", True),
        ("UNEXPECTED_TOOL_CALL", True),
        ("MALFORMED_FUNCTION_CALL", True),
    ],
)
def test_a_reply_is_whole_only_where_the_model_ended_it(reason, is_cut):
    fold = GeminiFold()
    fold.whole(chunk({"text": "a"}, finish=reason))
    finish = fold.close()[-1]
    assert isinstance(finish, Finish)
    assert (finish.reason, was_cut(finish)) == (reason, is_cut)


def test_a_body_may_be_a_list_of_chunks():
    chunks = [chunk({"text": "a"}), chunk({"text": "b"}, finish="STOP", modelVersion="gemini-x")]
    message = folded_whole(json.dumps(chunks).encode(), WIRE.fold())
    assert (message.text, message.finish, message.model) == ("ab", "STOP", "gemini-x")


ERROR = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}


@pytest.mark.parametrize(
    ("chunks", "kind"),
    [
        ([{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}], FailureClass.INVALID),
        ([chunk({"text": "a"}), ERROR], FailureClass.SERVER),
        ([chunk({"text": "a"}), [ERROR]], FailureClass.SERVER),
        ([chunk({"text": "a"})], FailureClass.SERVER),
        ([[]], FailureClass.PROTOCOL),
        ([{"error": {"code": 429, "message": "Quota.", "status": "RESOURCE_EXHAUSTED"}}], FailureClass.RATE_LIMIT),
        ([{"candidates": []}], FailureClass.SERVER),
    ],
)
def test_what_goes_wrong_has_its_class(chunks, kind):
    with pytest.raises(VendorError) as failed:
        stream(*chunks)
    assert failed.value.failure.kind is kind


@pytest.mark.parametrize(
    "body", [[ERROR], ERROR, {"promptFeedback": {"blockReason": "SAFETY"}}, {"hello": 1}, [], [1], "text", None]
)
def test_a_body_that_is_no_reply_fails(body):
    with pytest.raises(VendorError):
        folded_whole(json.dumps(body).encode(), WIRE.fold())


def test_blocks_without_end_are_reported_up_to_a_limit():
    part = {"inlineData": {"mimeType": "image/png", "data": "A" * (KEPT_CHARS_MAX // 4)}}
    blocks = stream(*[chunk(part)] * 6, chunk({"text": "", "thoughtSignature": "s" * 9}, finish="STOP")).whole
    assert len(blocks.server_blocks) == 3
    assert blocks.thinking == []


def test_a_block_that_is_no_object_is_left_out_of_a_request():
    message = Sent(
        stream(chunk(finish="STOP")).message.role, server_blocks=(ServerBlock(0, "{broken"),), vendor_model="v/m"
    )
    body = json.loads(WIRE.request(ModelCall("m", (message,), vendor_model="v/m"), frozenset()).body)
    assert body["contents"] == []

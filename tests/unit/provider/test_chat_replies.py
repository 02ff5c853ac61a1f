"""Replies of chat completions beyond text: blocks that go back, sources, whole bodies."""

import json
from typing import Any

import pytest
from turnwright_values.replies import ThinkingBlock

from cases import NEEDS_SHARED
from turnwright_core.chat.message import Message, Role
from turnwright_provider.domain.model_call import ModelCall
from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.wires.chat import ChatWire
from turnwright_provider.domain.wires.chat_messages import BLOCKS_MAX, THINKING_CHARS_MAX
from unit.provider.recorded import Message as Folded
from unit.provider.recorded import body_of, chat_fold, expected, folded, folded_whole, recorded, tags_of

BODIES = {
    case_id: case
    for case_id, case in recorded().items()
    if case["response"]["status"] == 200 and "stream" not in case["tags"] and "expected_outcome" not in case
}


@pytest.mark.parametrize("case_id", BODIES)
def test_a_recorded_body_folds_to_its_message(case_id):
    case = BODIES[case_id]
    said = json.loads(body_of(case))["choices"][0]["message"]
    message = expected(case)
    # A refusal is what the model says, and details of reasoning are reasoning.
    message.text = message.text or said.get("refusal") or ""
    details = said.get("reasoning_details") or ()
    message.reasoning = message.reasoning or "".join(detail.get("text", "") for detail in details)
    assert folded_whole(body_of(case), chat_fold(tags_of(case))) == message


@NEEDS_SHARED
def test_bodies_of_every_kind_are_in_the_corpus():
    assert len(BODIES) >= 45
    assert any(case["expected_tool_calls"] for case in BODIES.values())
    assert any(case["expected_reasoning"] for case in BODIES.values())
    assert sum(case["expected_usage"] is None for case in BODIES.values()) <= 2


def stream(*deltas: dict[str, Any]) -> bytes:
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)


def sent_back(folded: Folded) -> dict[str, Any]:
    call = ModelCall("m", (folded.message,), vendor_model="v/m")
    message: dict[str, Any] = json.loads(ChatWire(ThinkTags.ANYWHERE).request(call, frozenset()).body)["messages"][0]
    return message


@pytest.mark.parametrize(
    ("deltas", "message"),
    [
        pytest.param([{"reasoning_content": "a"}, {"reasoning_content": "b"}, {"content": "c"}],
                     {"content": "c", "reasoning_content": "ab"}, id="deepseek"),
        pytest.param([{"reasoning": "a"}, {"content": "c"}], {"content": "c", "reasoning": "a"}, id="groq"),
        pytest.param([{"reasoning": "a", "reasoning_content": "a"}, {"content": "c"}],
                     {"content": "c", "reasoning_content": "a"}, id="two-names"),
        pytest.param([{"reasoning": "a", "reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0, "format": "f"}]},
                      {"reasoning": "b", "reasoning_details": [{"type": "reasoning.text", "text": "b", "index": 0, "format": "f"}]},
                      {"reasoning_details": [{"type": "reasoning.text", "signature": "s", "index": 0, "format": "f"}]}, {"content": "c"}],
                     {"content": "c", "reasoning_details": [{"type": "reasoning.text", "text": "ab", "signature": "s", "index": 0, "format": "f"}]},
                     id="signed-text"),
        pytest.param([{"reasoning_details": [{"type": "reasoning.summary", "summary": "a", "index": 0}]},
                      {"reasoning_details": [{"type": "reasoning.encrypted", "data": "d1", "id": "r1", "index": 0, "format": "f"},
                                             {"type": "reasoning.encrypted", "data": "d2", "id": "r2", "index": 0, "format": "f"}]}],
                     {"content": "", "reasoning_details": [{"type": "reasoning.summary", "summary": "a", "index": 0},
                                             {"type": "reasoning.encrypted", "data": "d1", "id": "r1", "index": 0, "format": "f"},
                                             {"type": "reasoning.encrypted", "data": "d2", "id": "r2", "index": 0, "format": "f"}]},
                     id="encrypted"),
        pytest.param([{"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}]}, {"content": "c"}],
                     {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}, {"type": "text", "text": "c"}]}, id="mistral"),
        pytest.param([{"content": "c", "extra_content": {"google": {"thought_signature": "s"}}}],
                     {"content": "c", "extra_content": {"google": {"thought_signature": "s"}}}, id="google"),
        pytest.param([{"content": "<think>a</think>c"}], {"content": "c"}, id="tags"),
    ],
)  # fmt: skip
def test_reasoning_goes_back_as_it_came(deltas, message):
    # RD03, RD08
    assert sent_back(folded([stream(*deltas)])) == {"role": "assistant", **message}


def test_the_signature_of_a_call_is_kept():
    signed = {"google": {"thought_signature": "s"}}
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}, "extra_content": signed}
    (sent,) = sent_back(folded([stream({"tool_calls": [call]})]))["tool_calls"]
    assert sent["extra_content"] == signed


def test_calls_of_a_whole_body_need_neither_index_nor_id():
    calls = [{"id": "", "function": {"name": name, "arguments": "{}"}} for name in ("f", "g")]
    body = {"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}
    got = folded_whole(json.dumps(body).encode(), chat_fold())
    assert [call.name for call in got.message.calls] == ["f", "g"]


def test_sources_are_reported_once_whatever_shape_they_have():
    # RD04
    cited = {"type": "url_citation", "url_citation": {"url": "https://a", "title": "A"}}
    first = {"choices": [{"delta": {"content": "x", "annotations": [cited]}}], "citations": ["https://b"]}
    last = {"choices": [{"delta": {}, "finish_reason": "stop"}], "citations": ["https://b", "https://c"]}
    body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in (first, first, last))
    sources = [json.loads(one) for one in folded([body]).message.citations]
    assert sources == [cited, {"url": "https://b"}, {"url": "https://c"}]

    found = {"title": "B", "url": "https://b"}
    body = b"data: " + json.dumps(last | {"search_results": [found]}).encode() + b"\n\n"
    assert [json.loads(one) for one in folded([body]).message.citations] == [found]


@pytest.mark.parametrize(
    "details",
    [
        [{"type": None, "text": "a"}, {"text": "a"}, "junk", None],
        [{"type": "reasoning.text", "text": 5, "index": "x", "signature": []}],
        [{"type": "reasoning.encrypted", "data": {"deep": [1]}, "id": 7}],
        [{"type": "extra_content", "extra_content": "x"}],
    ],
)
def test_hostile_details_are_ignored_or_kept_but_never_raise(details):
    got = folded([stream({"reasoning_details": details}, {"content": "c"})])
    assert sent_back(got)["content"] == "c"


def test_reasoning_beyond_all_measure_is_reported_and_cannot_go_back():
    chunk = "x" * (THINKING_CHARS_MAX // 2)
    got = folded([stream(*[{"reasoning_content": chunk}] * 3, {"content": "c"})])
    assert len(got.reasoning) == 3 * len(chunk)
    assert got.message.thinking == ()

    many = [{"type": "reasoning.encrypted", "data": "d", "id": f"r{n}"} for n in range(BLOCKS_MAX + 5)]
    assert len(folded([stream({"reasoning_details": many})]).message.thinking) == BLOCKS_MAX


def test_a_block_whose_data_is_no_json_goes_back_without_it():
    block = ThinkingBlock("reasoning.text", 0, text="a", data="{")
    call = ModelCall("m", (Message(Role.ASSISTANT, thinking=(block,), vendor_model="v/m"),), vendor_model="v/m")
    body = json.loads(ChatWire(ThinkTags.ANYWHERE).request(call, frozenset()).body)
    assert body["messages"][0]["reasoning_details"] == [{"type": "reasoning.text", "text": "a"}]

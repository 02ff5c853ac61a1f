"""Replies of OpenAI's Responses: every recorded one folds to its message, and what is hostile is classified or ignored."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import NEEDS_SHARED, params
from turnwright_provider.domain.failures import FailureClass, VendorError
from turnwright_provider.domain.keyed_texts import KEYS_MAX, KeyedTexts
from turnwright_provider.domain.model_call import ModelCall
from turnwright_provider.domain.wires.responses import ResponsesWire
from turnwright_provider.domain.wires.responses_reply import ITEMS_MAX, ResponsesFold
from unit.provider.recorded import (
    Message,
    body_of,
    chunks_of,
    expected,
    folded,
    folded_whole,
    recorded,
)

CASES = recorded(api="openai.responses")
STREAMS = {i: c for i, c in CASES.items() if c["response"]["status"] == 200 and "stream" in c["tags"]}
BODIES = {i: c for i, c in CASES.items() if c["response"]["status"] == 200 and "stream" not in c["tags"]}


def sent_back(message: Message) -> list[dict[str, Any]]:
    call = ModelCall("m", (message.message,), vendor_model="v/m")
    items: list[dict[str, Any]] = json.loads(ResponsesWire().request(call, frozenset()).body)["input"]
    return items


def meant(case: dict[str, Any], output: list[dict[str, Any]], details: dict[str, Any] | None) -> Message:
    """What the case says; the reason of a reply that is incomplete stands in its details."""
    message = expected(case)
    if details:
        message.finish = details["reason"]
    # Parts of reasoning are told apart by a blank line, wherever they stand.
    kinds = [
        (item.get("summary") or []) + (item.get("content") or []) for item in output if item["type"] == "reasoning"
    ]
    if any(kinds):
        message.reasoning = "\n\n".join(part["text"] for parts in kinds for part in parts if part["text"])
    return message


@pytest.mark.parametrize("case_id", BODIES)
def test_a_recorded_body_folds_to_its_message(case_id):
    case = BODIES[case_id]
    body = json.loads(body_of(case))
    got = folded_whole(body_of(case), ResponsesFold())
    assert got == meant(case, body["output"], body.get("incomplete_details"))


@pytest.mark.parametrize("case_id", STREAMS)
def test_a_recorded_stream_folds_to_its_message(case_id):
    case = STREAMS[case_id]
    body = body_of(case)
    got = folded(chunks_of(case), ResponsesFold())
    done = [event["item"] for event in events_of(body) if event["type"] == "response.output_item.done"]
    last = next(
        event["response"]
        for event in events_of(body)
        if event["type"].endswith(("completed", "incomplete")) and "response" in event
    )
    assert got == meant(case, done, last.get("incomplete_details"))


def events_of(body: bytes) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data:").strip() for line in body.decode().splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.mark.parametrize("case_id", STREAMS)
def test_what_a_recorded_stream_holds_goes_back_item_by_item(case_id):
    # RD08: reasoning and what the vendor's tools wrote, as they came, in their order
    body = body_of(STREAMS[case_id])
    opaque = [
        {n: v for n, v in event["item"].items() if event["item"]["type"] != "reasoning" or n != "status"}
        for event in events_of(body)
        if event["type"] == "response.output_item.done" and event["item"]["type"] not in ("message", "function_call")
    ]
    sent = [
        item
        for item in sent_back(folded([body], ResponsesFold()))
        if item.get("type") not in ("message", "function_call")
    ]
    assert sent == opaque


@pytest.mark.parametrize("case_id", STREAMS)
def test_the_items_of_a_recorded_stream_go_back_in_their_order_each_text_in_its_place(case_id):
    body = body_of(STREAMS[case_id])
    done = [event["item"] for event in events_of(body) if event["type"] == "response.output_item.done"]
    assert shapes(sent_back(folded([body], ResponsesFold()))) == shapes(done)


def shapes(items: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Type and text of each item that says something."""
    found = []
    for item in items:
        content = item.get("content") or ""
        parts = content if isinstance(content, list) else [{"text": content}]
        text = "".join(part.get("text") or part.get("refusal") or "" for part in parts)
        if item["type"] != "message" or text:
            found.append((item["type"], text if item["type"] == "message" else ""))
    return found


def test_texts_between_reasoning_and_calls_go_back_where_they_stood():
    # A reasoning item whose next item is missing is refused by OpenAI.
    def message(text: str) -> dict[str, Any]:
        return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}

    def thought(name: str) -> dict[str, Any]:
        return {"type": "reasoning", "id": name, "summary": [], "encrypted_content": "b3BhcXVl"}

    call = {"type": "function_call", "call_id": "c", "name": "get", "arguments": "{}"}
    items = [thought("rs_1"), message("One. "), thought("rs_2"), message("Two."), call]
    body = json.dumps({"status": "completed", "output": items}).encode()

    sent = sent_back(folded_whole(body, ResponsesFold()))
    assert shapes(sent) == shapes(items)
    assert [item.get("id") for item in sent if item["type"] == "reasoning"] == ["rs_1", "rs_2"]


@NEEDS_SHARED
def test_every_kind_is_in_the_corpus():
    assert len(STREAMS) >= 35
    assert len(BODIES) >= 20
    assert any(case["expected_reasoning"] for case in STREAMS.values())
    assert any(case["expected_tool_calls"] for case in STREAMS.values())


# ---- What streams can be like


def stream(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **fields}


COMPLETED = event(
    "completed", response={"status": "completed", "model": "m", "usage": {"input_tokens": 2, "output_tokens": 3}}
)


def fold(*events: dict[str, Any]) -> Message:
    return folded([stream(*events, COMPLETED)], ResponsesFold())


def test_ids_that_change_in_every_event_do_not_matter_where_there_is_an_index():
    call = {"type": "function_call", "call_id": "c", "name": "f"}
    got = fold(
        event("output_text.delta", output_index=0, item_id="a", delta="x"),
        event("output_text.done", output_index=0, item_id="b", text="xy"),
        event("output_item.done", output_index=0, item={"id": "c", "type": "message", "content": [{"type": "output_text", "text": "xy"}]}),
        event("output_item.added", output_index=1, item={**call, "id": "d", "arguments": ""}),
        event("function_call_arguments.delta", output_index=1, item_id="e", delta='{"a"'),
        event("function_call_arguments.done", output_index=1, item_id="f", arguments='{"a":1}'),
        event("output_item.done", output_index=1, item={**call, "id": "g", "arguments": '{"a":1}'}),
    )  # fmt: skip
    assert got.text == "xy"
    assert got.tool_calls == [{"id": "c", "name": "f", "arguments": '{"a":1}'}]
    assert got.message.calls[0].block == 1


@pytest.mark.parametrize("case", params("refact/keyed_reasoning.jsonl"))
def test_reasoning_is_keyed_by_item_and_part(case):
    texts = KeyedTexts("\n\n")
    told = "".join(
        texts.add(*step["delta"]) if "delta" in step else texts.whole(*step["final"]) for step in case["input"]["steps"]
    )
    assert told == case["expected"]["joined"]


def test_reasoning_of_several_items_and_parts_is_joined_by_blank_lines():
    def part(item: int, index: int, delta: str) -> dict[str, Any]:
        return event("reasoning_summary_text.delta", output_index=item, summary_index=index, delta=delta)

    got = fold(part(0, 0, "a"), part(0, 0, "b"), part(0, 1, "c"), part(1, 0, "d"))
    assert got.reasoning == "ab\n\nc\n\nd"


def test_a_key_takes_no_more_once_it_is_whole_nor_another_text_than_it_began_with():
    texts = KeyedTexts()
    assert [texts.add(1, "ab"), texts.whole(1, "abc"), texts.add(1, "d"), texts.whole(1, "abcd")] == ["ab", "c", "", ""]
    assert [texts.add(2, "ab"), texts.whole(2, "xyz")] == ["ab", ""]
    for key in range(KEYS_MAX + 5):
        texts.add(("many", key), "x")
    assert texts.add("one more", "x") == ""


@given(data=st.data())
@settings(max_examples=50)
def test_any_pieces_and_the_whole_give_the_text(data):
    # RD07
    text = data.draw(st.text(max_size=30))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    texts = KeyedTexts()
    pieces = [text[a:b] for a, b in zip([0, *cuts], cuts, strict=False)]
    assert "".join(texts.add(1, piece) for piece in pieces) + texts.whole(1, text) == text


def test_a_reply_that_is_reported_at_its_end_only_is_whole():
    item = {"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}
    only = event("completed", response={"status": "completed", "output": [item], "usage": {"input_tokens": 1}})
    assert folded([stream(only)], ResponsesFold()).text == "no"


def test_sources_are_reported_once():
    # RD04
    source = {"type": "url_citation", "url": "https://a", "title": "A"}
    item = {"type": "message", "content": [{"type": "output_text", "text": "x", "annotations": [source]}]}
    got = fold(
        event("output_text.annotation.added", output_index=0, annotation=source),
        event("output_item.done", output_index=0, item=item),
    )
    assert [json.loads(one) for one in got.message.citations] == [source]


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        (event("failed", response={"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "Rate limit reached"}}), FailureClass.RATE_LIMIT),
        (event("failed", response={"status": "failed", "error": {"code": "server_error", "message": "x"}}), FailureClass.SERVER),
        (event("failed", response={"status": "failed"}), FailureClass.SERVER),
        ({"type": "error", "code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."}, FailureClass.CONTEXT_EXCEEDED),
        (event("output_text.delta", delta="cut"), FailureClass.SERVER),
    ],
)  # fmt: skip
def test_a_stream_that_fails_has_its_class(last, kind):
    with pytest.raises(VendorError) as raised:
        folded([stream(event("output_text.delta", delta="x"), last)], ResponsesFold())
    assert raised.value.failure.kind is kind


def test_an_incomplete_reply_says_why_and_is_cut():
    last = event("incomplete", response={"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}})
    assert folded([stream(event("output_text.delta", delta="x"), last)], ResponsesFold()).finish == "max_output_tokens"


def test_items_beyond_the_limit_are_ignored():
    item = {"type": "web_search_call"}
    got = fold(*(event("output_item.done", item={**item, "id": f"i{n}"}) for n in range(ITEMS_MAX + 5)))
    assert len(got.message.server_blocks) == ITEMS_MAX
    huge = fold(
        event("output_item.done", output_index=10**12, item=item), event("output_item.done", output_index=-1, item=item)
    )
    assert huge.message.server_blocks == ()


@pytest.mark.parametrize("body", [b"[]", b'"x"', b'{"object": "chat.completion"}', b'{"output": 5}'])
def test_a_body_that_is_no_response_is_a_protocol_error(body):
    with pytest.raises(VendorError) as raised:
        folded_whole(body, ResponsesFold())
    assert raised.value.failure.kind is FailureClass.PROTOCOL

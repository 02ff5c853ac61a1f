"""Every recorded reply of Anthropic's Messages: streams and whole bodies.

The usage of the cases is the vendor's own, which counts the cache beside the input; ours is normalised
(research/wire 2.3) and each figure is the largest of a stream (RD05), so that the expectation is, too.
"""

import json
from typing import Any

import pytest
from turnwright_values.provider import Finish
from turnwright_values.types import Usage

from cases import NEEDS_SHARED, expect
from turnwright_core.chat.message import Message, Role, Text, text_message
from turnwright_core.chat.reply import PartialReply
from turnwright_provider.domain.failures import FailureClass, VendorError
from turnwright_provider.domain.model_call import ModelCall
from turnwright_provider.domain.wires.anthropic import AnthropicWire
from unit.provider.anthropic_replies import MODEL, content_of, events_of, folded, is_message, is_stream
from unit.provider.recorded import body_of, chunks_of, recorded

ALL = {i: c for i, c in recorded(api="anthropic.messages").items() if is_message(c)}
CONSTRUCTED = {i: c for i, c in ALL.items() if c["provenance"] == "constructed"}
REPLIES = {i: c for i, c in ALL.items() if c["response"]["status"] == 200 and i not in CONSTRUCTED}


def starts_again(case: dict[str, Any]) -> bool:
    """Whether a second message begins inside the first: no valid response, whatever a lenient reader makes of it."""
    lines = body_of(case).decode("utf-8-sig").split("\n")
    events = (json.loads(line[5:]) for line in lines if line.startswith("data:"))
    return len({event["message"]["id"] for event in events if event["type"] == "message_start"}) > 1


CUT = {i for i, c in REPLIES.items() if is_stream(c) and b'"message_stop"' not in body_of(c)}
SPLICED = {i for i, c in REPLIES.items() if is_stream(c) and i not in CUT and starts_again(c)}
WHOLE = {i: c for i, c in REPLIES.items() if i not in SPLICED | CUT and "expected_text" in c}
STREAMS = {i: c for i, c in WHOLE.items() if is_stream(c)}
EXCEPTIONS: dict[str, str] = {}


def expected(case: dict[str, Any]) -> dict[str, Any]:
    """What the case says, in our shape."""
    return {
        "text": case["expected_text"],
        "reasoning": case["expected_reasoning"] or "",
        "calls": [(c["id"], c["name"], said_in(c["arguments"])) for c in case["expected_tool_calls"]],
        "thinking": [
            (b["type"], b.get("thinking", ""), b.get("signature") or "", b.get("data", ""))
            for b in case.get("expected_thinking_blocks") or ()
        ],
        "others": [kind for kind in case.get("expected_block_types") or () if kind != "text"],
        "finish": case["expected_finish_reason"] or "",
        "model": case["expected_model"],
        "usage": usage_expected(case),
    }


def shown(case: dict[str, Any], chunks: list[bytes] | None = None) -> dict[str, Any]:
    message, finish = folded(case, chunks)
    thinking = [b for b in message.thinking if b.type != "text"]
    others = [(b.index, b.type) for b in thinking]
    others += [(b.index, json.loads(b.json)["type"]) for b in message.server_blocks]
    others += [(call.block, "tool_use") for call in message.calls]
    return {
        "text": message.text,
        "reasoning": message.reasoning,
        "calls": [(call.id, call.name, said_in(call.arguments)) for call in message.calls],
        "thinking": [(b.type, b.text, b.signature, b.data) for b in thinking],
        "others": [kind for _, kind in sorted(others)],
        "finish": finish.reason,
        "model": finish.vendor_model,
        "usage": finish.usage,
    }


def said_in(arguments: str) -> Any:
    """What arguments say, however they are written; nothing for those that a limit broke off."""
    try:
        return json.loads(arguments)
    except ValueError:
        return {}


def usage_expected(case: dict[str, Any]) -> Usage | None:
    raw = case["expected_usage"]
    if raw is None:
        return None
    # A report that says less than the one before it, as after a compaction, takes nothing back.
    reports = [raw, *({"cached_input_tokens": r.get("cache_read_input_tokens"), **r} for r in begun_with(case))]
    beside = [(r.get("cached_input_tokens") or 0, r.get("cache_write_tokens") or 0) for r in reports]
    prompt = max((r["input_tokens"] or 0) + sum(both) for r, both in zip(reports, beside, strict=True))
    completion = max(r["output_tokens"] or 0 for r in reports)
    return Usage(
        prompt_tokens=prompt,
        cached_tokens=max(cached for cached, _ in beside),
        completion_tokens=completion,
        reasoning_tokens=raw["reasoning_tokens"] or 0,
        total_tokens=prompt + completion,
        cache_write_tokens=max(written for _, written in beside),
    )


def begun_with(case: dict[str, Any]) -> list[dict[str, Any]]:
    """The usage of message_start."""
    for line in body_of(case).decode("utf-8-sig").split("\n"):
        if line.startswith("data:") and (event := json.loads(line[5:]))["type"] == "message_start":
            usage = event["message"]["usage"]
            return [{**usage, "cache_write_tokens": usage.get("cache_creation_input_tokens")}]
    return []


@pytest.mark.parametrize("case_id", WHOLE)
def test_a_recorded_reply_folds_to_its_message(case_id):
    case = WHOLE[case_id]
    expect(case_id, passed=shown(case, chunks_of(case)) == expected(case), exceptions=EXCEPTIONS)


@pytest.mark.parametrize("case_id", WHOLE)
def test_every_block_of_a_recorded_reply_goes_back_as_it_came(case_id):
    # RD08, RD04: fold, send in the next request, compare with what was written
    case = WHOLE[case_id]
    message, _ = folded(case)
    answers = [Message(Role.TOOL, (Text("done"),), call_id=call.id) for call in message.calls]
    call = ModelCall("m", (text_message(Role.USER, "hi"), message, *answers), vendor_model=MODEL)
    turns = json.loads(AnthropicWire().request(call, frozenset()).body)["messages"]
    sent = turns[1]["content"] if len(turns) > 1 else []
    assert as_sent(sent) == as_sent(content_of(case))


def as_sent(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks that can go back, in their order: texts that say something, thinking that was signed.

    That a call is the model's own need not be said. A source is told once, however many texts name it.
    """
    blocks: list[dict[str, Any]] = []
    named: set[str] = set()
    for block in content:
        told = {key: value for key, value in block.items() if (key, value) != ("caller", {"type": "direct"})}
        if block["type"] == "text":
            sources = [{k: v for k, v in one.items() if k != "file_id"} for one in block.get("citations") or ()]
            fresh = [one for one in sources if json.dumps(one) not in named]
            named |= {json.dumps(one) for one in fresh}
            told = {"type": "text", "text": block["text"], **({"citations": fresh} if fresh else {})}
        if block.get("text", "x").strip() and (block["type"] != "thinking" or block.get("signature")):
            blocks.append(told)
    return blocks


def test_recorded_streams_that_were_cut_are_failures():
    for case_id in CUT:
        with pytest.raises(VendorError):
            folded(REPLIES[case_id])


@pytest.mark.parametrize("case_id", SPLICED)
def test_a_message_that_begins_inside_another_is_no_valid_response(case_id):
    with pytest.raises(VendorError) as broken:
        folded(REPLIES[case_id])
    assert broken.value.failure.kind is FailureClass.PROTOCOL


@NEEDS_SHARED
def test_the_corpus_has_every_kind_of_block():
    kinds = {block["type"] for case in WHOLE.values() for block in content_of(case)}
    assert kinds >= {"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "compaction", "fallback"}
    assert len(STREAMS) >= 30


def test_what_a_caller_has_when_the_stream_is_cut_is_the_beginning_of_the_reply():
    case = next(case for i, case in STREAMS.items() if "thinking_streaming" in i)
    whole, reply = folded(case)[0], PartialReply()
    for event in events_of([body_of(case)]):
        if not isinstance(event, Finish):
            reply.add(event)
            assert whole.reasoning.startswith(reply.thoughts)
            assert whole.text.startswith(reply.text)

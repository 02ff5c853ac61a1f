"""Replies of Anthropic's Messages one by one: blocks that interleave, what servers leave out, and what is no reply."""

import json
from typing import Any

import pytest
from turnwright_values.provider import Finish
from turnwright_values.replies import ServerBlock, ThinkingBlock
from turnwright_values.types import Usage

from turnwright_core.chat.deltas import AddServerBlock, SetThinkingBlocks, SetToolCalls
from turnwright_core.chat.message import Message
from turnwright_provider.domain.failures import FailureClass, VendorError
from turnwright_provider.domain.model_call import was_cut
from turnwright_provider.domain.sse import SseEvent
from turnwright_provider.domain.wires.anthropic_reply import BLOCKS_MAX, KEPT_CHARS_MAX, AnthropicFold
from unit.provider.anthropic_replies import collected, events_of, events_of_body

BEGIN = {"type": "message_start", "message": {"id": "a", "model": "m", "usage": {"input_tokens": 1}}}
END = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]


def starts(index: Any, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **fields}}


def grows(index: Any, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": f"{kind}_delta", **fields}}


def stops(index: Any) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def wired(*events: Any) -> list[bytes]:
    return [f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode() for event in events]


def reply(*events: Any) -> tuple[Message, Finish]:
    return collected(events_of(wired(BEGIN, *events, *END)))


# ---- Blocks


def test_blocks_that_are_open_together_are_distinguished_by_their_index():
    message, _ = reply(
        starts(0, "thinking", thinking="", signature=""), grows(0, "thinking", thinking="think"),
        starts(1, "text", text=""), grows(1, "text", text="say "),
        starts(2, "tool_use", id="x", name="t", input={}), grows(2, "input_json", partial_json='{"a":'),
        grows(0, "thinking", thinking=" more"), grows(1, "text", text="it"), grows(2, "input_json", partial_json="1}"),
        stops(1), stops(2), grows(0, "signature", signature="old"), grows(0, "signature", signature="new"), stops(0),
    )  # fmt: skip
    assert (message.text, message.reasoning) == ("say it", "think more")
    assert message.thinking == (ThinkingBlock("thinking", 0, text="think more", signature="new"),)
    (call,) = message.calls
    assert (call.id, call.name, call.arguments, call.block) == ("x", "t", '{"a":1}', 2)


def test_a_block_that_is_signed_after_its_end_keeps_its_text():
    # RD03: as llama.cpp does
    message, _ = reply(
        starts(0, "thinking"), grows(0, "thinking", thinking="t"), stops(0),
        starts(1, "text"), grows(1, "text", text="x"), grows(0, "signature", signature="late"),
    )  # fmt: skip
    assert message.thinking == (ThinkingBlock("thinking", 0, text="t", signature="late"),)


def test_what_a_start_holds_already_counts():
    message, _ = reply(
        starts(0, "thinking", thinking="t", signature="s"), stops(0),
        starts(1, "text", text="x", citations=[{"url": "u"}, None]), stops(1),
        starts(2, "tool_use", id="i", name="n", input={"a": [1]}), grows(2, "input_json", partial_json='{"a": [1]}'),
        stops(2), starts(3, "redacted_thinking", data="d"), stops(3),
    )  # fmt: skip
    assert message.thinking == (
        ThinkingBlock("thinking", 0, text="t", signature="s"),
        ThinkingBlock("redacted_thinking", 3, data="d"),
    )
    assert (message.text, message.citations) == ("x", ('{"url":"u"}',))
    assert [json.loads(call.arguments) for call in message.calls] == [{"a": [1]}]


def test_a_block_of_a_servers_tool_is_reported_whole_with_what_it_was_given():
    # RD04
    message, _ = reply(
        starts(0, "server_tool_use", id="s", name="web_search", input={}),
        grows(0, "input_json", partial_json='{"query":'), grows(0, "input_json", partial_json='"q"}'), stops(0),
        starts(1, "web_search_tool_result", tool_use_id="s", content=[{"url": "ü"}]), stops(1),
        starts(2, "compaction", content=None), grows(2, "compaction", content="short", encrypted_content="e"), stops(2),
        starts(3, "text"), grows(3, "citations", citation={"url": "ü"}), grows(3, "citations", citation=None),
    )  # fmt: skip
    assert message.server_blocks == (
        ServerBlock(0, '{"type":"server_tool_use","id":"s","name":"web_search","input":{"query":"q"}}'),
        ServerBlock(1, '{"type":"web_search_tool_result","tool_use_id":"s","content":[{"url":"ü"}]}'),
        ServerBlock(2, '{"type":"compaction","content":"short","encrypted_content":"e"}'),
    )
    assert message.citations == ('{"url":"ü"}',)


def test_an_index_that_begins_anew_is_the_next_block():
    message, _ = reply(
        starts(0, "text"), grows(0, "text", text="a"), stops(0),
        starts(0, "tool_use", id="x", name="t"), grows(0, "input_json", partial_json='{"x":1}'), stops(0),
        starts(0, "tool_use", id="y", name="t"), grows(0, "input_json", partial_json='{"y":1}'), stops(0),
    )  # fmt: skip
    assert [(c.id, c.arguments, c.block) for c in message.calls] == [("x", '{"x":1}', 1), ("y", '{"y":1}', 2)]


def test_a_block_that_is_begun_twice_is_one():
    message, _ = reply(*2 * [starts(0, "tool_use", id="x", name="t")], grows(0, "input_json", partial_json="{}"))
    assert [call.block for call in message.calls] == [0]


def test_what_servers_leave_out_is_filled_in():
    message, finish = reply(
        grows(0, "thinking", thinking="t"), grows(1, "text", text="no start"), starts(None, "text"),
        grows(None, "text", text=", no index"), grows("1", "text", text=", a text for an index"), stops(None),
    )  # fmt: skip
    assert (message.text, message.reasoning) == ("no start, no index, a text for an index", "t")
    assert finish == Finish("end_turn", Usage(1, total_tokens=1), "m")


def test_the_caller_of_a_call_goes_with_it_unless_it_is_the_model():
    caller = {"type": "code_execution_20250825", "tool_id": "s"}
    message, _ = reply(
        starts(0, "tool_use", id="x", name="t", caller=caller),
        starts(1, "tool_use", id="y", name="t", caller={"type": "direct"}),
    )
    assert [json.loads(call.signature or "null") for call in message.calls] == [caller, None]


# ---- The message


@pytest.mark.parametrize("again", [BEGIN, {"type": "message_start", "message": {}}, {"type": "message_start"}])
def test_the_same_message_that_begins_again_goes_on(again):
    assert reply(starts(0, "text"), again, grows(0, "text", text="x"))[0].text == "x"


def test_another_message_that_begins_inside_is_no_valid_response():
    with pytest.raises(VendorError) as broken:
        reply({"type": "message_start", "message": {"id": "b"}})
    assert broken.value.failure.kind is FailureClass.PROTOCOL


def test_a_report_of_usage_leaves_what_it_does_not_say_as_it_was():
    # RD05
    usage = {"input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": None, "output_tokens": 1}
    begin = {"type": "message_start", "message": {"usage": usage}}
    more = {"type": "message_delta", "usage": {"input_tokens": 5, "output_tokens": 9, "cache_read_input_tokens": None}}
    thought = {"type": "message_delta", "usage": {"output_tokens_details": {"thinking_tokens": 4}}}
    _, finish = collected(events_of(wired(begin, more, thought, {"type": "message_delta", "usage": None}, *END)))
    assert finish.usage == Usage(45, 40, 9, 4, 54)


@pytest.mark.parametrize(
    ("reason", "is_cut"),
    [("end_turn", False), ("tool_use", False), ("stop_sequence", False), ("max_tokens", True), ("refusal", True),
     ("pause_turn", True), ("model_context_window_exceeded", True), ("compaction", True), ("new", True)],
)  # fmt: skip
def test_a_reason_to_end_is_reported_in_its_own_word(reason, is_cut):
    details = {"type": "refusal", "category": "cyber"}
    delta = {"stop_reason": reason, "stop_details": details, "stop_sequence": None}
    message, finish = collected(events_of(wired(BEGIN, {"type": "message_delta", "delta": delta}, END[1])))
    assert (finish.reason, was_cut(finish), json.loads(message.extra)) == (reason, is_cut, {"stop_details": details})


def test_a_body_in_one_piece_is_the_same_reply():
    content = [
        {"type": "thinking", "thinking": "t", "signature": "s"},
        {"type": "text", "text": "x", "citations": [{"url": "u"}]},
        {"type": "server_tool_use", "id": "s", "input": {"q": 1}},
        {"type": "tool_use", "id": "i", "name": "n", "input": {"a": 1}},
    ]
    body = {"id": "a", "type": "message", "model": "m", "content": content, "stop_reason": "tool_use"}
    message, finish = collected(events_of_body({**body, "usage": {"input_tokens": 2, "output_tokens": 3}}))
    assert (message.text, message.reasoning, message.citations) == ("x", "t", ('{"url":"u"}',))
    assert message.thinking == (ThinkingBlock("thinking", 0, text="t", signature="s"),)
    assert message.server_blocks == (ServerBlock(2, '{"type":"server_tool_use","id":"s","input":{"q":1}}'),)
    assert [(c.name, c.arguments, c.block) for c in message.calls] == [("n", '{"a":1}', 3)]
    assert finish == Finish("tool_use", Usage(2, 0, 3, 0, 5), "m")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, FailureClass.SERVER),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}, FailureClass.RATE_LIMIT),
        ({"type": "error", "error": {"type": "authentication_error", "message": "bad"}}, FailureClass.AUTH),
        ({"choices": [{"message": {"content": "x"}}]}, FailureClass.PROTOCOL),
        ([], FailureClass.PROTOCOL),
        ("x", FailureClass.PROTOCOL),
        ({}, FailureClass.PROTOCOL),
        ({"content": "x"}, FailureClass.PROTOCOL),
    ],
)
def test_a_body_that_is_no_message_fails_as_what_it_is(body, kind):
    with pytest.raises(VendorError) as broken:
        events_of_body(body)
    assert broken.value.failure.kind is kind


# ---- Breaks, and what is hostile


def folded_until_it_breaks(*events: Any) -> list[Any]:
    fold = AnthropicFold()
    deltas = [delta for event in events for delta in fold.event(SseEvent("", json.dumps(event)))]
    return [*deltas, *fold.flush()]


def test_of_a_stream_that_breaks_off_only_complete_blocks_are_kept_for_the_vendor():
    deltas = folded_until_it_breaks(
        BEGIN, starts(0, "thinking"), grows(0, "thinking", thinking="half"), starts(1, "server_tool_use", id="s"),
        starts(2, "tool_use", id="x", name="t"), grows(2, "input_json", partial_json='{"a"'),
    )  # fmt: skip
    assert not [delta for delta in deltas if isinstance(delta, SetThinkingBlocks | AddServerBlock)]
    assert [delta.calls[0].arguments for delta in deltas if isinstance(delta, SetToolCalls)][-1] == '{"a"'


@pytest.mark.parametrize("events", [[], [BEGIN], [BEGIN, starts(0, "text"), grows(0, "text", text="x")]])
def test_a_stream_without_its_end_is_a_failure_that_passes(events):
    with pytest.raises(VendorError) as broken:
        events_of(wired(*events))
    assert broken.value.failure.kind is (FailureClass.SERVER if events else FailureClass.PROTOCOL)


def test_an_event_that_is_nested_too_deeply_is_a_failure():
    deep = '{"type":"content_block_start","index":0,"content_block":{"type":"x","input":' + "[" * 100_000
    with pytest.raises(VendorError) as broken:
        events_of(wired(BEGIN, deep))
    assert broken.value.failure.kind is FailureClass.PROTOCOL


def test_blocks_beyond_the_limit_are_ignored():
    many = [starts(None, "text", text="x") for _ in range(BLOCKS_MAX + 10)]
    assert len(reply(*many)[0].text) == BLOCKS_MAX
    assert reply(starts(BLOCKS_MAX, "text", text="x"), starts(-1, "text", text="x"))[0].text == ""


@pytest.mark.parametrize(
    "kind", [("thinking", "thinking"), ("input_json", "partial_json"), ("signature", "signature")]
)  # fmt: skip
def test_what_is_held_until_its_block_is_complete_has_a_bound(kind):
    begun = "thinking" if kind[0] != "input_json" else "server_tool_use"
    fold = AnthropicFold()
    fold.event(SseEvent("", json.dumps(starts(0, begun))))
    piece = SseEvent("", json.dumps(grows(0, kind[0], **{kind[1]: "x" * (KEPT_CHARS_MAX // 8)})))
    for _ in range(7):
        fold.event(piece)
    with pytest.raises(VendorError) as broken:
        fold.event(piece)
    assert broken.value.failure.kind is FailureClass.PROTOCOL


def test_every_kind_of_growth_is_progress_and_a_ping_is_none():
    fold, seen = AnthropicFold(), []
    for event in (
        starts(0, "thinking"), grows(0, "thinking", thinking="t"), grows(0, "signature", signature="s"),
        starts(1, "server_tool_use"), grows(1, "input_json", partial_json="{"), starts(2, "text"),
        grows(2, "text", text="x"), starts(3, "tool_use", name="t"), grows(3, "input_json", partial_json="{"), END[1],
    ):  # fmt: skip
        fold.event(SseEvent("", json.dumps(event)))
        seen.append(fold.progress)
    assert sorted(set(seen)) == seen
    assert AnthropicFold().progress == 0
    fold = AnthropicFold()
    fold.event(SseEvent("", '{"type":"ping"}'))
    assert fold.progress == 0

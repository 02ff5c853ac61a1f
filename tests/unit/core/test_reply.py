"""The one fold of increments: what belongs to which block, what is added, what is refused, and that splits do not matter."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turnwright_values.replies import ServerBlock, ThinkingBlock, ToolCall
from turnwright_values.types import Usage

from cases import expect, params
from turnwright_core.chat.deltas import (
    AddCitation,
    AddServerBlock,
    AppendContent,
    AppendReasoning,
    Delta,
    MergeExtra,
    SetThinkingBlocks,
    SetToolCalls,
    SetUsage,
)
from turnwright_core.chat.message import Message, Role, Text
from turnwright_core.chat.reply import CORE_FIELDS, PartialReply, partial_reply, with_text
from turnwright_core.wire.deltas import delta_from_pb, delta_to_pb


def folded(*deltas: Delta) -> PartialReply:
    reply = PartialReply()
    for delta in deltas:
        reply.add(delta)
    return reply


def block_of(block: dict[str, Any]) -> ThinkingBlock:
    """A block of the cases; what has no field of its own is its data."""
    own = {"index", "type", "id", "thinking", "signature", "data"}
    rest = {name: value for name, value in block.items() if name not in own}
    return ThinkingBlock(
        block.get("type", ""),
        block.get("index"),
        block.get("id", ""),
        block.get("thinking", ""),
        block.get("signature", ""),
        block.get("data", "") or (json.dumps(rest) if rest else ""),
    )


# ---- RD03


MERGE_EXCEPTIONS = {
    "derived_id_match_ignores_type": "RD03: blocks of another type are others, whatever their id; no data is lost",
    "derived_id_no_fallthrough_to_index": "RD03: the index counts before the id",
}


@pytest.mark.parametrize("case", params("refact/merge_thinking.jsonl"))
def test_a_case_of_blocks_is_merged(case):
    # RD03
    batches = [case["input"]["dst"], *case["input"]["batches"]]
    reply, signatures = PartialReply(), []
    for batch in batches:
        reply.add(SetThinkingBlocks(tuple(map(block_of, batch))))
        signatures.append([block.signature for block in reply.thinking])
    passed = reply.thinking == [block_of(block) for block in case["expected"]["blocks"]]
    passed &= case["expected"].get("after_each", signatures[1:]) == signatures[1:]
    expect(case["id"], passed=passed, exceptions=MERGE_EXCEPTIONS)


@pytest.mark.parametrize(
    ("held", "new", "merged"),
    [
        # By index, whatever the id and the signature.
        (
            ThinkingBlock("t", 1, "a", "x", "s"),
            ThinkingBlock("t", 1, "b", "", "z"),
            [ThinkingBlock("t", 1, "b", "x", "z")],
        ),
        # By id where the new one has no index, and it keeps the old one's.
        (ThinkingBlock("t", 1, "a", "x"), ThinkingBlock("t", None, "a", "y"), [ThinkingBlock("t", 1, "a", "y")]),
        # By signature where it has neither.
        (ThinkingBlock("t", 1, "a", "x", "s"), ThinkingBlock("t", signature="s", data="d"),
         [ThinkingBlock("t", 1, "a", "x", "s", "d")]),
        # Without any of them there is no counterpart.
        (ThinkingBlock("t", text="x"), ThinkingBlock("t", text="x"), [ThinkingBlock("t", text="x")] * 2),
        (ThinkingBlock("t", 1), ThinkingBlock("u", 1), [ThinkingBlock("t", 1), ThinkingBlock("u", 1)]),
        (ThinkingBlock("t", 1), ThinkingBlock("t", 2), [ThinkingBlock("t", 1), ThinkingBlock("t", 2)]),
    ],
)  # fmt: skip
def test_a_block_takes_the_place_of_its_counterpart(held, new, merged):
    # RD03
    assert folded(SetThinkingBlocks((held,)), SetThinkingBlocks((new,))).thinking == merged
    assert folded(SetThinkingBlocks((held, new))).thinking == merged


FINAL_EXCEPTIONS = {
    "completed_summary_replaces_partial": "RD01, RD07: reasoning is appended only; no increment replaces what was told",
}


@pytest.mark.parametrize("case", params("refact/thinking_finalize.jsonl"))
def test_a_case_of_blocks_without_their_text_goes_back_with_it(case):
    # RD08
    given_ = case["input"]
    final = with_text(tuple(map(block_of, given_["thinking_blocks"])), given_["reasoning"])
    passed = final == tuple(map(block_of, case["expected"]["thinking_blocks"]))
    expect(case["id"], passed=passed, exceptions=FINAL_EXCEPTIONS)


@pytest.mark.parametrize(
    "blocks",
    [
        (),
        (ThinkingBlock("thinking", 0, text="own", signature="s"),),
        (ThinkingBlock("thinking", 0, signature="s"), ThinkingBlock("thinking", 1, signature="t")),
        (ThinkingBlock("reasoning", 0),),
    ],
)
def test_no_block_gets_a_text_that_may_be_anothers(blocks):
    assert with_text(blocks, "all of it") == blocks


# ---- RD01, RD04, RD05, RD06: the increments one by one


OPS_EXCEPTIONS = {
    "set_reasoning_replaces": "RD01: reasoning is appended only; there are eight increments",
    "merge_extra_cannot_touch_core_fields": "RD06: keys that are core fields are refused, where the case keeps them twice",
}


def deltas_of(message: dict[str, Any]) -> list[Delta]:
    """What brings a message of the cases about."""
    ops = {
        "content": lambda value: {"op": "append_content", "text": value},
        "reasoning_content": lambda value: {"op": "append_reasoning", "text": value},
        "tool_calls": lambda value: {"op": "set_tool_calls", "tool_calls": value},
        "extra": lambda value: {"op": "merge_extra", "extra": value},
    }
    return [delta for name, value in message.items() if name in ops if (delta := delta_of(ops[name](value)))]


def delta_of(op: dict[str, Any]) -> Delta | None:
    """The increment of an operation, by way of the wire; None for one that is not known."""
    match op:
        case {"op": "append_content", "text": text}:
            delta: Delta = AppendContent(text)
        case {"op": "append_reasoning", "text": text}:
            delta = AppendReasoning(text)
        case {"op": "set_tool_calls", "tool_calls": calls}:
            delta = SetToolCalls(tuple(map(call_of, calls)))
        case {"op": "set_thinking_blocks", "blocks": blocks}:
            delta = SetThinkingBlocks(tuple(map(block_of, blocks)))
        case {"op": "add_citation", "citation": source}:
            delta = AddCitation(json.dumps(source))
        case {"op": "add_server_content_block", "block": block}:
            delta = AddServerBlock(ServerBlock(0, json.dumps(block)))
        case {"op": "set_usage", "usage": usage}:
            delta = SetUsage(Usage(**usage))
        case {"op": "merge_extra", "extra": extra}:
            delta = MergeExtra(json.dumps(extra))
        case _:
            return None
    return delta_from_pb(delta_to_pb(delta))


def call_of(call: dict[str, Any]) -> ToolCall:
    function = call.get("function", {})
    return ToolCall(function.get("name", ""), function.get("arguments", ""), id=call["id"])


def reply_of(message: dict[str, Any]) -> PartialReply:
    """A message of the cases as it is expected."""
    return PartialReply(
        [message["content"]],
        [message.get("reasoning_content", "")],
        tuple(map(call_of, message.get("tool_calls", ()))),
        Usage(**message.get("usage", {})),
        list(map(block_of, message.get("thinking_blocks", ()))),
        [ServerBlock(0, json.dumps(block)) for block in message.get("server_content_blocks", ())],
        list(map(json.dumps, message.get("citations", ()))),
        message.get("extra", {}),
    )


@pytest.mark.parametrize("case", params("refact/delta_ops.jsonl"))
def test_a_case_of_increments_is_folded(case):
    deltas = [delta_of(op) for op in case["input"]["ops"]]
    reply = folded(*deltas_of(case["input"]["message"]), *filter(None, deltas))
    wanted = reply_of(case["expected"])
    passed = reply.message() == wanted.message() and reply.usage == wanted.usage
    expect(case["id"], passed=passed, exceptions=OPS_EXCEPTIONS)


def test_what_is_null_adds_nothing():
    # RD04
    nothing = [*map(AddCitation, ("null", "")), *(AddServerBlock(ServerBlock(0, text)) for text in ("null", ""))]
    assert folded(*nothing) == PartialReply()


def test_sources_and_blocks_are_added_in_order_and_never_joined():
    # RD04
    same = [AddCitation('{"u":1}'), AddServerBlock(ServerBlock(3, "{}"))]
    reply = folded(*same, *same)
    assert (reply.citations, reply.server_blocks) == (['{"u":1}'] * 2, [ServerBlock(3, "{}")] * 2)


FIELDS = (
    *("role", "content", "parts", "reasoning", "reasoning_content", "calls", "tool_calls", "thinking", "server_blocks"),
    *("citations", "extra", "vendor_model", "call_id", "tool", "failed", "usage"),
)


def test_every_field_of_the_message_has_a_name_of_its_own():
    assert set(FIELDS) == CORE_FIELDS


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_the_message_is_no_extra(name):
    # RD06: refused, and the reply says which
    reply = folded(MergeExtra(json.dumps({name: "x", "own": 1})), MergeExtra(json.dumps({name: "y"})))
    assert (reply.extra, reply.refused) == ({"own": 1}, [name])


def test_extras_are_merged_by_their_keys_alone():
    # RD06: shallow, and what is no object adds nothing
    reply = folded(*map(MergeExtra, ('{"a":{"x":1},"b":1}', '{"a":{"y":2}}', "[1]", "null", "", "{", "[" * 100_000)))
    assert json.loads(reply.message().extra) == {"a": {"y": 2}, "b": 1}


# ---- RD07


TEXTS = st.text(max_size=8)
BLOCKS = st.builds(
    ThinkingBlock,
    st.sampled_from(["thinking", "reasoning"]),
    st.none() | st.integers(0, 2),
    id=st.sampled_from(["", "a", "b"]),
    text=TEXTS,
    signature=st.sampled_from(["", "s", "t"]),
    data=TEXTS,
)
CALLS = st.builds(ToolCall, TEXTS, TEXTS, st.integers(0, 3), block=st.none() | st.integers(0, 9))
FIGURES = st.integers(0, 1000)
DELTAS = st.one_of(
    st.builds(AppendContent, TEXTS),
    st.builds(AppendReasoning, TEXTS),
    st.builds(SetToolCalls, st.lists(CALLS, max_size=3).map(tuple)),
    st.builds(SetThinkingBlocks, st.lists(BLOCKS, max_size=4).map(tuple)),
    st.builds(AddCitation, st.sampled_from(["{}", '{"u":1}', "null"])),
    st.builds(AddServerBlock, st.builds(ServerBlock, st.integers(0, 9), st.sampled_from(["{}", '{"t":1}']))),
    st.builds(SetUsage, st.builds(Usage, FIGURES, FIGURES, FIGURES, FIGURES, FIGURES)),
    st.builds(MergeExtra, st.sampled_from(['{"a":1}', '{"a":2,"b":{}}', '{"role":1}'])),
)


@given(st.lists(DELTAS, max_size=10), st.data())
def test_any_split_of_a_stream_folds_to_the_same_message(deltas, data):
    # RD07
    pieces = [piece for delta in deltas for piece in split(delta, data)]
    whole, parts = folded(*deltas), folded(*pieces)
    assert (parts.message("v/m"), parts.usage) == (whole.message("v/m"), whole.usage)


def split(delta: Delta, data: st.DataObject) -> list[Delta]:
    """The same said in more increments."""
    match delta:
        case AppendContent(text) | AppendReasoning(text):
            cut = data.draw(st.integers(0, len(text)))
            return [type(delta)(text[:cut]), type(delta)(text[cut:])]
        case SetThinkingBlocks(blocks):
            return [SetThinkingBlocks((block,)) for block in blocks]
        case SetToolCalls(calls):
            return [SetToolCalls(calls[: data.draw(st.integers(0, len(calls)))]), delta]
        case SetUsage():
            return [delta, delta]
        case _:
            return [delta]


@given(st.lists(DELTAS, max_size=10), st.integers(0, 10))
def test_whoever_comes_later_and_is_told_what_there_is_has_the_same_message(deltas, place):
    # RD07: a snapshot in the middle, and the increments that follow
    begun = folded(*deltas[:place])
    later = partial_reply([begun.text], [begun.thoughts], begun.message(), begun.usage)
    for delta in deltas[place:]:
        later.add(delta)
    assert (later.message("v/m"), later.usage) == (folded(*deltas).message("v/m"), folded(*deltas).usage)


def test_a_reply_is_one_message_of_its_model():
    reply = folded(AppendContent("a"), AppendReasoning("r"), AppendContent("b"), SetToolCalls((ToolCall("t", "{}"),)))
    assert reply.message("v/m") == Message(
        Role.ASSISTANT, (Text("ab"),), "r", (ToolCall("t", "{}"),), vendor_model="v/m"
    )

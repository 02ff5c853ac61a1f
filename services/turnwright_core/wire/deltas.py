"""Protobuf conversion of deltas of replies."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from turnwright.types.v1 import delta_pb2
from turnwright_values.replies import CallBegun, CallEnded, CallGrown, TakenBack

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
from turnwright_core.wire.codec import codec
from turnwright_core.wire.messages import server_block_from_pb, server_block_to_pb
from turnwright_core.wire.runs import usage_from_pb, usage_to_pb

_KINDS: Final[dict[type, tuple[str, Callable[[Any], object], Callable[[Any], Delta]]]] = {
    AppendContent: ("append_content", attrgetter("text"), AppendContent),
    AppendReasoning: ("append_reasoning", attrgetter("text"), AppendReasoning),
    SetToolCalls: ("set_tool_calls", *codec(SetToolCalls, delta_pb2.ToolCalls)),
    SetThinkingBlocks: ("set_thinking_blocks", *codec(SetThinkingBlocks, delta_pb2.ThinkingBlocks)),
    AddCitation: ("add_citation", attrgetter("json"), AddCitation),
    AddServerBlock: (
        "add_server_content_block",
        lambda delta: server_block_to_pb(delta.block),
        lambda block: AddServerBlock(server_block_from_pb(block)),
    ),
    SetUsage: ("set_usage", lambda delta: usage_to_pb(delta.usage), lambda usage: SetUsage(usage_from_pb(usage))),
    MergeExtra: ("merge_extra", attrgetter("json"), MergeExtra),
    CallBegun: ("begin_call", *codec(CallBegun, delta_pb2.CallBegun)),
    CallGrown: ("grow_call", *codec(CallGrown, delta_pb2.CallGrown)),
    CallEnded: ("end_call", *codec(CallEnded, delta_pb2.CallEnded)),
    TakenBack: ("take_back", *codec(TakenBack, delta_pb2.TakenBack)),
}
"""By kind of delta: its field, encoder and decoder."""
_DECODERS: Final = {name: decode for name, _, decode in _KINDS.values()}


def delta_to_pb(delta: Delta, message: delta_pb2.Delta | None = None) -> delta_pb2.Delta:
    """`message`: the field to fill in place, which saves the copy of a message that is built apart."""
    message = delta_pb2.Delta() if message is None else message
    name, encode, _ = _KINDS[type(delta)]
    value = encode(delta)
    if isinstance(value, str):
        setattr(message, name, value)
        return message
    held = getattr(message, name)
    # An empty one is set too.
    held.SetInParent()
    held.CopyFrom(value)
    return message


def delta_from_pb(delta: delta_pb2.Delta) -> Delta | None:
    """A delta; None for a kind of a later version."""
    name = delta.WhichOneof("change")
    return _DECODERS[name](getattr(delta, name)) if name else None

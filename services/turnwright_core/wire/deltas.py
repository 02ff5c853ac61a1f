"""Protobuf conversion of deltas of replies."""

from __future__ import annotations

from typing import assert_never

from turnwright.types.v1 import delta_pb2

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
from turnwright_core.wire.messages import (
    server_block_from_pb,
    server_block_to_pb,
    thinking_from_pb,
    thinking_to_pb,
    tool_call_from_pb,
    tool_call_to_pb,
)
from turnwright_core.wire.runs import usage_from_pb, usage_to_pb


def delta_to_pb(delta: Delta, message: delta_pb2.Delta | None = None) -> delta_pb2.Delta:
    """`message`: the field to fill in place, which saves the copy of a message that is built apart."""
    message = delta_pb2.Delta() if message is None else message
    match delta:
        case AppendContent(text):
            message.append_content = text
        case AppendReasoning(text):
            message.append_reasoning = text
        case SetToolCalls(calls):
            message.set_tool_calls.SetInParent()
            message.set_tool_calls.calls.extend(map(tool_call_to_pb, calls))
        case SetThinkingBlocks(blocks):
            message.set_thinking_blocks.SetInParent()
            message.set_thinking_blocks.blocks.extend(map(thinking_to_pb, blocks))
        case AddCitation(json):
            message.add_citation = json
        case AddServerBlock(block):
            message.add_server_content_block.CopyFrom(server_block_to_pb(block))
        case SetUsage(usage):
            message.set_usage.CopyFrom(usage_to_pb(usage))
        case MergeExtra(json):
            message.merge_extra = json
        case _:
            assert_never(delta)
    return message


def delta_from_pb(delta: delta_pb2.Delta) -> Delta | None:  # noqa: PLR0911 - one line for each kind
    """A delta; None for a kind of a later version."""
    match delta.WhichOneof("change"):
        case "append_content":
            return AppendContent(delta.append_content)
        case "append_reasoning":
            return AppendReasoning(delta.append_reasoning)
        case "set_tool_calls":
            return SetToolCalls(tuple(map(tool_call_from_pb, delta.set_tool_calls.calls)))
        case "set_thinking_blocks":
            return SetThinkingBlocks(tuple(map(thinking_from_pb, delta.set_thinking_blocks.blocks)))
        case "add_citation":
            return AddCitation(delta.add_citation)
        case "add_server_content_block":
            return AddServerBlock(server_block_from_pb(delta.add_server_content_block))
        case "set_usage":
            return SetUsage(usage_from_pb(delta.set_usage))
        case "merge_extra":
            return MergeExtra(delta.merge_extra)
        case _:
            return None

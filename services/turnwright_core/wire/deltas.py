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


def delta_to_pb(delta: Delta) -> delta_pb2.Delta:  # noqa: PLR0911 - one line for each kind
    match delta:
        case AppendContent(text):
            return delta_pb2.Delta(append_content=text)
        case AppendReasoning(text):
            return delta_pb2.Delta(append_reasoning=text)
        case SetToolCalls(calls):
            return delta_pb2.Delta(set_tool_calls=delta_pb2.ToolCalls(calls=map(tool_call_to_pb, calls)))
        case SetThinkingBlocks(blocks):
            return delta_pb2.Delta(set_thinking_blocks=delta_pb2.ThinkingBlocks(blocks=map(thinking_to_pb, blocks)))
        case AddCitation(json):
            return delta_pb2.Delta(add_citation=json)
        case AddServerBlock(block):
            return delta_pb2.Delta(add_server_content_block=server_block_to_pb(block))
        case SetUsage(usage):
            return delta_pb2.Delta(set_usage=usage_to_pb(usage))
        case MergeExtra(json):
            return delta_pb2.Delta(merge_extra=json)
        case _:
            assert_never(delta)


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

"""Increments of replies on the wire."""

from __future__ import annotations

from typing import assert_never

from turnwright.types.v1 import delta_pb2

from turnwright_core.deltas import AppendContent, AppendReasoning, Delta, SetToolCalls, SetUsage, ToolCall
from turnwright_core.wire.runs import usage_from_pb, usage_to_pb


def delta_to_pb(delta: Delta) -> delta_pb2.Delta:
    match delta:
        case AppendContent(text):
            return delta_pb2.Delta(append_content=text)
        case AppendReasoning(text):
            return delta_pb2.Delta(append_reasoning=text)
        case SetToolCalls(calls):
            listed = [
                delta_pb2.ToolCall(index=call.index, id=call.id, name=call.name, arguments=call.arguments)
                for call in calls
            ]
            return delta_pb2.Delta(set_tool_calls=delta_pb2.ToolCalls(calls=listed))
        case SetUsage(usage):
            return delta_pb2.Delta(set_usage=usage_to_pb(usage))
        case _:
            assert_never(delta)


def delta_from_pb(delta: delta_pb2.Delta) -> Delta | None:
    """An increment; None for one of a later version."""
    match delta.WhichOneof("change"):
        case "append_content":
            return AppendContent(delta.append_content)
        case "append_reasoning":
            return AppendReasoning(delta.append_reasoning)
        case "set_tool_calls":
            calls = delta.set_tool_calls.calls
            return SetToolCalls(tuple(ToolCall(call.name, call.arguments, call.index, call.id) for call in calls))
        case "set_usage":
            return SetUsage(usage_from_pb(delta.set_usage))
        case _:
            return None

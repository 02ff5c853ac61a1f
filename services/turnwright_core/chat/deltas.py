"""The kinds of deltas of a model's reply: the eight of vendors, and four of replies in parts.

Meanings and limits are in types/v1/delta.proto. Source: RD01-RD06.
"""

from __future__ import annotations

from msgspec import Struct
from turnwright_values.replies import CallBegun, CallEnded, CallGrown, ServerBlock, TakenBack, ThinkingBlock, ToolCall
from turnwright_values.types import Usage


class AppendContent(Struct, frozen=True, tag=True):
    """Text to append to the content."""

    text: str


class AppendReasoning(Struct, frozen=True, tag=True):
    """Text to append to the reasoning."""

    text: str


class SetToolCalls(Struct, frozen=True, tag=True):
    """All tool calls so far; replaces the list."""

    calls: tuple[ToolCall, ...]


class SetThinkingBlocks(Struct, frozen=True, tag=True):
    """Blocks that are new or changed; see merge_thinking."""

    blocks: tuple[ThinkingBlock, ...]


class AddCitation(Struct, frozen=True, tag=True):
    """A source to append; a JSON object as the vendor wrote it."""

    json: str


class AddServerBlock(Struct, frozen=True, tag=True):
    """A block to append, written by a tool of the vendor."""

    block: ServerBlock


class SetUsage(Struct, frozen=True, tag=True):
    """Usage so far."""

    usage: Usage


class MergeExtra(Struct, frozen=True, tag=True):
    """A JSON object whose keys replace existing ones of the same name."""

    json: str


PartDelta = AppendContent | CallBegun | CallGrown | CallEnded | TakenBack
"""What a text comes to as people read it."""

Delta = (
    AppendContent
    | AppendReasoning
    | SetToolCalls
    | SetThinkingBlocks
    | AddCitation
    | AddServerBlock
    | SetUsage
    | MergeExtra
    | CallBegun
    | CallGrown
    | CallEnded
    | TakenBack
)

"""A model's reply while it streams: the only fold of deltas. Any split of a stream gives the same reply (RD07).

Reasoning blocks arrive in pieces, several open at once (RD03).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct, field
from msgspec.structs import astuple, replace
from turnwright_values.replies import CallBegun, CallEnded, CallGrown, ServerBlock, TakenBack, ThinkingBlock, ToolCall
from turnwright_values.types import Usage

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
from turnwright_core.json_text import JsonObject, parse_json

SIGNED: Final = "thinking"
"""Type of the blocks whose text is signed."""


def with_text(blocks: tuple[ThinkingBlock, ...], reasoning: str) -> tuple[ThinkingBlock, ...]:
    """The blocks in a form that can be sent back: a signed block gets its text, if that was streamed separately.

    If several are signed, nobody knows whose text it is.
    """
    signed = [block for block in blocks if block.type == SIGNED]
    if len(signed) != 1 or signed[0].text:
        return blocks
    return tuple(replace(block, text=reasoning) if block.type == SIGNED else block for block in blocks)


def merge_thinking(held: list[ThinkingBlock], blocks: Iterable[ThinkingBlock]) -> None:
    """Let each block replace its counterpart in `held`, or append it.

    Fields that a block leaves empty stay as they were. A signature is opaque: a new one replaces the old.
    """
    for block in blocks:
        place = next((n for n, other in enumerate(held) if _is_same(other, block)), None)
        if place is None:
            held.append(block)
        else:
            held[place] = _updated(held[place], block)


def _is_same(one: ThinkingBlock, other: ThinkingBlock) -> bool:
    if one.type != other.type:
        return False
    if other.index is not None:
        return one.index == other.index
    if other.id:
        return one.id == other.id
    return bool(other.signature) and one.signature == other.signature


def _updated(old: ThinkingBlock, new: ThinkingBlock) -> ThinkingBlock:
    return replace(
        old,
        id=new.id or old.id,
        text=new.text or old.text,
        signature=new.signature or old.signature,
        data=new.data or old.data,
    )


CORE_FIELDS: Final = frozenset({*Message.__struct_fields__, "content", "reasoning_content", "tool_calls", "usage"})
"""Keys of `extra` that are refused, because fields of the message have these names (RD06)."""


_NULLS: Final = ("", "null")
"""Values that add nothing (RD04)."""


class GrowingCall(Struct):
    """A call of a reply in parts, with its arguments in pieces."""

    name: str
    arguments: list[str] = field(default_factory=list)


class PartialReply(Struct):
    """A reply so far. Texts are kept in pieces: joining them each time would be quadratic."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    thinking: list[ThinkingBlock] = field(default_factory=list)
    server_blocks: list[ServerBlock] = field(default_factory=list)
    citations: list[str] = field(default_factory=list)
    extra: JsonObject = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    """Keys of `extra` that were refused, once each."""
    growing: list[GrowingCall] = field(default_factory=list)
    """The calls of a reply in parts."""

    @property
    def text(self) -> str:
        return "".join(self.content)

    @property
    def thoughts(self) -> str:
        return "".join(self.reasoning)

    def add(self, delta: Delta) -> None:
        match delta:
            case AppendContent(text):
                self.content.append(text)
            case AppendReasoning(text):
                self.reasoning.append(text)
            case SetToolCalls(calls):
                self.calls = calls
            case SetUsage(usage):
                self.usage = _larger(self.usage, usage)
            case CallBegun() | CallGrown() | CallEnded() | TakenBack():
                self._add_part(delta)
            case SetThinkingBlocks(blocks):
                merge_thinking(self.thinking, blocks)
            case AddServerBlock(block) if block.json not in _NULLS:
                self.server_blocks.append(block)
            case AddCitation(source) if source not in _NULLS:
                self.citations.append(source)
            case MergeExtra(text):
                sent = _extra(text)
                self.refused += [key for key in sent if key in CORE_FIELDS and key not in self.refused]
                self.extra.update({key: value for key, value in sent.items() if key not in CORE_FIELDS})

    def _add_part(self, delta: CallBegun | CallGrown | CallEnded | TakenBack) -> None:
        if self.calls and not self.growing:
            # From a snapshot, which has them as they were.
            self.growing = [GrowingCall(call.name, [call.arguments]) for call in self.calls]
            self.calls = ()
        match delta:
            case CallBegun(name=name):
                self.growing.append(GrowingCall(name))
            case CallGrown(index, text) if index < len(self.growing):
                self.growing[index].arguments.append(text)
            case TakenBack(chars, calls):
                text = self.text
                self.content[:] = [text[: len(text) - chars]]
                del self.growing[calls:]
            case _:
                pass

    def message(self, vendor_model: str = "") -> Message:
        """The reply as a message of the model `vendor/model`."""
        text = self.text
        return Message(
            Role.ASSISTANT,
            (Text(text),) if text else (),
            self.thoughts,
            self.calls or tuple(_grown_calls(self.growing)),
            tuple(self.thinking),
            tuple(self.server_blocks),
            tuple(self.citations),
            json.dumps(self.extra, ensure_ascii=False, separators=(",", ":")) if self.extra else "",
            vendor_model,
        )


def partial_reply(content: list[str], reasoning: list[str], rest: Message, usage: Usage) -> PartialReply:
    """A partial reply from another process: its texts in pieces, and a message with everything else."""
    return PartialReply(
        content,
        reasoning,
        rest.calls,
        usage,
        list(rest.thinking),
        list(rest.server_blocks),
        list(rest.citations),
        _extra(rest.extra) if rest.extra else {},
    )


def _grown_calls(calls: list[GrowingCall]) -> Iterator[ToolCall]:
    for index, call in enumerate(calls):
        yield ToolCall(call.name, "".join(call.arguments), index)


def _extra(text: str) -> JsonObject:
    try:
        parsed = parse_json(text)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _larger(one: Usage, other: Usage) -> Usage:
    """The maximum of each field; for a cost that only one of them knows, that one."""
    if one == Usage():
        return other
    pairs = zip(astuple(one), astuple(other), strict=True)
    return Usage(*(max(a, b) if a is not None and b is not None else b if a is None else a for a, b in pairs))

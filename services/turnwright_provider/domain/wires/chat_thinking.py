"""Reasoning of chat completions as blocks, sent back under the field name that it had in the reply.

    reasoning_content, reasoning    a text beside the content: DeepSeek, Z.ai, xAI, llama.cpp; Groq, Ollama, vLLM
    reasoning.*                     OpenRouter's `reasoning_details`, with signatures and encrypted data
    thinking                        a part of the content: Mistral
    extra_content                   Google's signature of a reply, an object

A block's `data` is a JSON object of its other fields than type, id, text and signature.
Source: RD03, RD08; research/wire 2.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct, field
from turnwright_values.replies import ThinkingBlock

from turnwright_core.chat.deltas import SetThinkingBlocks
from turnwright_core.json_text import JsonMapping, JsonObject
from turnwright_provider.domain.surrogates import join_surrogates
from turnwright_provider.domain.tool_calls import parse_index, text_of
from turnwright_provider.domain.wires.blocks import object_in

THINKING_CHARS_MAX: Final = 3 * 1024 * 1024
"""Longest reasoning that is sent back, in code points: it is a single delta. Longer reasoning is only shown."""

BLOCKS_MAX: Final = 1000

_TEXTS: Final = ("reasoning_content", "reasoning")
_DETAILS: Final = "reasoning."
_SIGNED: Final = "extra_content"
_PART: Final = "thinking"
_OWN: Final = frozenset({"type", "id", "signature"})


class _Held(Struct):
    texts: list[str] = field(default_factory=list)
    rest: JsonObject = field(default_factory=dict)


class ThinkingFold:
    """Collects the reasoning of a reply; returns its blocks at the end."""

    def __init__(self) -> None:
        self._held: dict[tuple[Any, ...], _Held] = {}
        self._chars = 0

    def say(self, kind: str, text: str) -> None:
        """Add a piece of a text, under one of its names."""
        self.add({"type": kind, "text": text})

    def add(self, detail: JsonMapping) -> None:
        """Add a piece of a block: texts are appended, anything else replaces the earlier value."""
        kind, name = detail.get("type"), detail.get("id")
        self._chars += sum(len(key) + _size(value) for key, value in detail.items())
        if not isinstance(kind, str) or self._chars > THINKING_CHARS_MAX:
            return
        # One index can stand for several blocks of data, such as the signatures of parallel calls.
        key = (kind, parse_index(detail.get("index")), name if "data" in detail and isinstance(name, str) else "")
        if key not in self._held and len(self._held) >= BLOCKS_MAX:
            return
        held = self._held.setdefault(key, _Held())
        for field_name, value in detail.items():
            if field_name == _text_field(kind) and isinstance(value, str):
                held.texts.append(value)
            elif value is not None:
                held.rest[field_name] = value

    def end(self) -> SetThinkingBlocks | None:
        """The blocks in the order in which they began; if there are detailed ones, only those."""
        if not self._held or self._chars > THINKING_CHARS_MAX:
            return None
        has_details = any(kind.startswith(_DETAILS) for kind, *_ in self._held)
        shown = [held for (kind, *_), held in self._held.items() if not (has_details and kind in _TEXTS)]
        return SetThinkingBlocks(tuple(_block(index, held) for index, held in enumerate(shown)))


def _block(place: int, held: _Held) -> ThinkingBlock:
    rest = {name: value for name, value in held.rest.items() if name not in _OWN}
    return ThinkingBlock(
        join_surrogates(held.rest["type"]),
        place,
        join_surrogates(text_of(held.rest.get("id"))),
        join_surrogates("".join(held.texts)),
        join_surrogates(text_of(held.rest.get("signature"))),
        json.dumps(rest) if rest else "",
    )


def thinking_fields(blocks: Iterable[ThinkingBlock]) -> JsonObject:
    """The message fields that carry its blocks back, except parts of the content."""
    fields: JsonObject = {}
    for block in blocks:
        if block.type in _TEXTS:
            fields[block.type] = block.text
        elif block.type == _SIGNED:
            fields |= object_in(block.data)
        elif block.type.startswith(_DETAILS):
            fields.setdefault("reasoning_details", []).append(_detail(block))
    return fields


def thinking_parts(blocks: Iterable[ThinkingBlock]) -> list[JsonObject]:
    """The content parts that carry its blocks back."""
    return [
        {"type": _PART, _PART: [{"type": "text", "text": block.text}], **object_in(block.data)}
        for block in blocks
        if block.type == _PART
    ]


def is_known(block: ThinkingBlock) -> bool:
    """Whether chat completions can carry it."""
    return block.type in (*_TEXTS, _SIGNED, _PART) or block.type.startswith(_DETAILS)


def _detail(block: ThinkingBlock) -> JsonObject:
    common = {"id": block.id, _text_field(block.type): block.text, "signature": block.signature}
    return {"type": block.type, **object_in(block.data), **{name: value for name, value in common.items() if value}}


def _text_field(kind: str) -> str:
    return "summary" if kind == "reasoning.summary" else "text"


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str) else len(json.dumps(value))

"""The messages of a call in the form of chat completions.

A single text is a string, which every server accepts; several parts and images are a list. With cache marks every text
is a list, so that moving a mark does not change earlier messages. A tool's result can only be text: a mark is next to
it, and its images follow in a user message.
Source: research/wire 2.1.

Reasoning of chat completions as blocks, sent back under the field name that it had in the reply.

    reasoning_content, reasoning    a text beside the content: DeepSeek, Z.ai, xAI, llama.cpp; Groq, Ollama, vLLM
    reasoning.*                     OpenRouter's `reasoning_details`, with signatures and encrypted data
    thinking                        a part of the content: Mistral
    extra_content                   Google's signature of a reply, an object

A block's `data` is a JSON object of its other fields than type, id, text and signature.
Source: RD03, RD08; research/wire 2.1.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from msgspec import Struct, field
from turnwright_values.replies import ThinkingBlock, ToolCall

from turnwright_core.chat.deltas import SetThinkingBlocks
from turnwright_core.chat.message import Image, Message, Part, Text
from turnwright_core.json_text import JsonMapping, JsonObject
from turnwright_provider.domain.surrogates import join_surrogates
from turnwright_provider.domain.tool_calls import parse_index, text_of
from turnwright_provider.domain.wires.blocks import images_of, object_in
from turnwright_provider.domain.wires.prepare_messages import ASSISTANT, TOOL, USER

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


CACHE_MARK: Final = {"cache_control": {"type": "ephemeral"}}


def chat_messages(messages: Iterable[Message], *, marks: bool) -> list[JsonObject]:
    """The messages, with cache marks if `marks`."""
    sent: list[JsonObject] = []
    images: list[Image] = []
    for message in messages:
        if images and message.role is not TOOL:
            sent.append(_shown(images, marks=marks))
            images = []
        written = _message(message, marks=marks)
        if message.role is not ASSISTANT or written["content"] or len(written) > len(("role", "content")):
            # A reply that says nothing is refused, such as one that was cut off while it reasoned.
            sent.append(written)
        if message.role is TOOL:
            images += images_of(message)
    return [*sent, _shown(images, marks=marks)] if images else sent


def _shown(images: Sequence[Image], *, marks: bool) -> JsonObject:
    return {"role": "user", "content": content_of(images, _part, marks=marks)}


def _message(message: Message, *, marks: bool) -> JsonObject:
    if message.role is ASSISTANT:
        return _reply(message, marks=marks)
    if message.role is USER:
        return {"role": "user", "content": content_of(message.parts, _part, marks=marks)}
    texts = _texts(message)
    if message.role is TOOL:
        mark = CACHE_MARK if marks and any(part.cache for part in texts) else {}
        return {"role": "tool", "content": content_of(texts, _part), "tool_call_id": message.call_id, **mark}
    return {"role": "system", "content": content_of(texts, _part, marks=marks)}


def _reply(message: Message, *, marks: bool) -> JsonObject:
    texts = _texts(message)
    content = content_of(texts, _part, marks=marks and any(text.cache for text in texts))
    if not (message.thinking or message.calls):
        return {"role": "assistant", "content": content}
    if thought := thinking_parts(message.thinking):
        shown = [{"type": "text", "text": content}] if isinstance(content, str) and content else content
        content = [*thought, *shown]
    sent = {"role": "assistant", "content": content, **thinking_fields(message.thinking)}
    if message.calls:
        # Some servers refuse an empty text with calls.
        sent["content"] = content or None
        sent["tool_calls"] = [_call(call) for call in message.calls]
    return sent


def _call(call: ToolCall) -> JsonObject:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function, **_signed(call.signature)}


def _signed(signature: str) -> JsonObject:
    """Google's signature of a call; see tool_calls."""
    signed = object_in(signature)
    return {"extra_content": signed} if signed else {}


def _texts(message: Message) -> Sequence[Text]:
    if len(message.parts) == 1 and isinstance(message.parts[0], Text):
        return message.parts  # type: ignore[return-value]
    return [part for part in message.parts if isinstance(part, Text)]


def content_of(
    parts: Sequence[Part], encode: Callable[[Part], JsonObject], *, marks: bool = False
) -> str | list[JsonObject]:
    """Content as one string if it is a single text without a cache mark, else as encoded parts."""
    shown = [part for part in parts if isinstance(part, Image) or part.text] if len(parts) > 1 else parts
    if not shown:
        return ""
    if len(shown) == 1 and isinstance(shown[0], Text) and not (marks and shown[0].text):
        return shown[0].text
    return [{**encode(part), **(CACHE_MARK if marks and part.cache else {})} for part in shown]


def _part(part: Part) -> JsonObject:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": image_url(part)}}


def image_url(image: Image) -> str:
    """Its address, or a data URL."""
    return image.url or f"data:{image.mime};base64,{base64.b64encode(image.data).decode()}"

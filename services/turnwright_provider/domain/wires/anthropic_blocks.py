"""A conversation as Anthropic's turns: two roles, lists of blocks, tools answered in the user's next turn."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Container, Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from turnwright_core.chat.message import Image, Message, Part, ServerBlock, Text, ThinkingBlock, ToolCall
from turnwright_core.chat.thinking import with_text
from turnwright_provider.domain.wires.blocks import object_in, ordered_blocks, piece_of
from turnwright_provider.domain.wires.chat_messages import CACHE_MARK
from turnwright_provider.domain.wires.images import inline_image
from turnwright_provider.domain.wires.prepare_messages import ASSISTANT, SYSTEM, TOOL, is_own

Wired = dict[str, Any]
"""A block on the wire."""

_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")

THOUGHTS: Final = ("thinking", "redacted_thinking")
"""Types of blocks of reasoning."""


def conversation(messages: Sequence[Message], vendor_model: str) -> tuple[list[Wired], list[Wired]]:
    """The blocks of the system prompt, and the turns, for this model."""
    own_ids = {one.id for message in messages if is_own(message, vendor_model) for one in message.calls}
    system: list[Wired] = []
    turns: list[Wired] = []
    for message in messages:
        if message.role is SYSTEM:
            system += _shown(part for part in message.parts if isinstance(part, Text))
        elif message.role is ASSISTANT:
            _add(turns, "assistant", _reply(message, own_ids))
        else:
            _add(turns, "user", [_result(message, own_ids)] if message.role is TOOL else _shown(message.parts))
    for turn in turns:
        if turn["role"] == "user" and len(turn["content"]) > 1:
            # Results must come before other content of a user message.
            turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    return system, turns


def _add(turns: list[Wired], role: str, blocks: list[Wired]) -> None:
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"] += blocks
    elif blocks:
        turns.append({"role": role, "content": blocks})


def _shown(parts: Iterable[Part]) -> list[Wired]:
    """Empty texts are refused, so they are left out."""
    return [
        _image(part) if isinstance(part, Image) else _text(part)
        for part in parts
        if isinstance(part, Image) or part.text.strip()
    ]


def _text(part: Text) -> Wired:
    block: Wired = {"type": "text", "text": part.text}
    return block | CACHE_MARK if part.cache else block


def _image(image: Image) -> Wired:
    source: Wired = {"type": "url", "url": image.url}
    if found := inline_image(image):
        source = {"type": "base64", "media_type": found[0], "data": found[1]}
    return {"type": "image", "source": source, **(CACHE_MARK if image.cache else {})}


def _result(message: Message, own_ids: Container[str]) -> Wired:
    """The result of a call. A cache mark inside would be refused, so it is on the whole block."""
    content = _shown(message.parts)
    is_marked = any(part.cache for part in message.parts)
    if is_marked:
        content = [{key: value for key, value in block.items() if key not in CACHE_MARK} for block in content]
    return {
        "type": "tool_result",
        "tool_use_id": _id(message.call_id, own_ids),
        **({"content": content} if content else {}),
        **({"is_error": True} if message.failed else {}),
        **(CACHE_MARK if is_marked else {}),
    }


def _reply(message: Message, own_ids: Container[str]) -> list[Wired]:
    blocks: list[Wired] = []
    cited = deque(map(_cited, message.citations))
    for item in ordered_blocks(_with_thoughts(message)):
        match item:
            case Text() | ThinkingBlock(type="text"):
                blocks += _text_block(item, cited)
            case ThinkingBlock(type="thinking") if item.signature:
                blocks.append({"type": "thinking", "thinking": item.text, "signature": item.signature})
            case ThinkingBlock(type="redacted_thinking"):
                blocks.append({"type": "redacted_thinking", "data": item.data})
            case ServerBlock():
                blocks += [block] if (block := object_in(item.json)) else []
            case ToolCall():
                blocks.append(_call(item, own_ids))
    return blocks


def _with_thoughts(message: Message) -> Message:
    if not message.thinking:
        return message
    return replace(message, thinking=with_text(message.thinking, message.reasoning))


def _text_block(text: Text | ThinkingBlock, cited: deque[Wired]) -> list[Wired]:
    """A text with its sources: the next ones that are left, or all of them if it is the only text."""
    count = piece_of(text)[2] if isinstance(text, ThinkingBlock) else len(cited)
    taken = [source for _ in range(min(count, len(cited))) if (source := cited.popleft())]
    if not text.text.strip():
        return []
    block = _text(text) if isinstance(text, Text) else {"type": "text", "text": text.text}
    return [block | ({"citations": taken} if taken else {})]


def _cited(source: str) -> Wired:
    """A source in the form of requests, in which the name of its file is not accepted."""
    return {key: value for key, value in object_in(source).items() if key != "file_id"}


def _call(call: ToolCall, own_ids: Container[str]) -> Wired:
    caller = object_in(call.signature)
    return {
        "type": "tool_use",
        "id": _id(call.id, own_ids),
        "name": _name(call.name),
        "input": object_in(call.arguments),
        **({"caller": caller} if caller else {}),
    }


def _id(text: str, own_ids: Container[str]) -> str:
    """The id of a call; a proxy's own may have other characters."""
    return text if text in own_ids else _name(text)


def _name(text: str) -> str:
    """A name or id of another vendor, in the characters that Anthropic accepts."""
    return text if text.isalnum() and text.isascii() else _ODD.sub("_", text)

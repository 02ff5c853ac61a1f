"""A reply as the list of blocks that its vendor wrote: for wires whose messages are such lists.

Blocks and calls that know their place stand there; the text, which knows none, fills the first gap.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import msgspec

from turnwright_core.chat.message import Message, Part, ServerBlock, ThinkingBlock, ToolCall
from turnwright_core.json_text import parse_json

_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])

ReplyBlock = Part | ThinkingBlock | ServerBlock | ToolCall


def in_order(message: Message) -> list[ReplyBlock]:
    """What the message holds, in the order in which it was written, as far as that is known."""
    if not (message.thinking or message.server_blocks or message.calls):
        return list(message.parts)
    placed: list[tuple[int, ReplyBlock]] = [(one.index, one) for one in message.thinking if one.index is not None]
    placed += [(one.index, one) for one in message.server_blocks]
    placed += [(one.block, one) for one in message.calls if one.block is not None]
    parts = deque(message.parts)
    ordered: list[ReplyBlock] = [one for one in message.thinking if one.index is None]
    following = 0
    for place, block in sorted(placed, key=lambda pair: pair[0]):
        while parts and following < place:
            ordered.append(parts.popleft())
            following += 1
        ordered.append(block)
        following = place + 1
    return [*ordered, *parts, *(one for one in message.calls if one.block is None)]


def object_in(text: str) -> dict[str, Any]:
    """The object that a JSON text says; an empty one for anything else, such as arguments that a model broke off."""
    if not text:
        return {}
    try:
        return _OBJECT.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        # Stricter than others about halves of characters, and numbers that are none.
        return _lenient(text)


def _lenient(text: str) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}

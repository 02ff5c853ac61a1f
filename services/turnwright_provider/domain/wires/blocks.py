"""The blocks of a reply in their vendor's order, for wires whose messages are lists of blocks.

Blocks, calls and pieces of text with a known position are put there; other text fills the first gap.
"""

from __future__ import annotations

import base64
import re
from collections import deque
from operator import itemgetter
from typing import Final

from msgspec.structs import replace
from turnwright_values.replies import ServerBlock, ThinkingBlock, ToolCall

from turnwright_core.chat.message import Image, Message, Part, Text
from turnwright_core.json_text import JsonObject, json_object

ReplyBlock = Part | ThinkingBlock | ServerBlock | ToolCall

TEXT: Final = "text"
"""Type of the blocks with the position of a piece of text: in deltas and messages, a reply has a single text.

`data` is the piece, `start:end` in code points, and `:count` if it has this many sources.
"""

_PIECE: Final = re.compile(r"(\d{1,9}):(\d{1,9})(?::(\d{1,9}))?")


def piece_of(block: ThinkingBlock) -> tuple[int, int, int]:
    """Start, end and number of sources of a piece of the text."""
    found = _PIECE.fullmatch(block.data)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else (0, 0, 0)


def ordered_blocks(message: Message) -> list[ReplyBlock]:
    """The content of a message in its original order, as far as that is known.

    Pieces of text with a known position become blocks of the type `text`, with their text.
    """
    is_placed = message.thinking or message.server_blocks or any(one.block is not None for one in message.calls)
    if not is_placed:
        return [*message.parts, *message.calls]
    thinking, parts = _pieces(message)
    placed: list[tuple[int, ReplyBlock]] = [(one.index, one) for one in thinking if one.index is not None]
    placed += [(one.index, one) for one in message.server_blocks]
    placed += [(one.block, one) for one in message.calls if one.block is not None]
    ordered: list[ReplyBlock] = [one for one in thinking if one.index is None]
    following = 0
    for place, block in sorted(placed, key=itemgetter(0)):
        while parts and following < place:
            ordered.append(parts.popleft())
            following += 1
        ordered.append(block)
        following = place + 1
    return [*ordered, *parts, *(one for one in message.calls if one.block is None)]


def _pieces(message: Message) -> tuple[list[ThinkingBlock], deque[Part]]:
    """The thinking blocks, the text blocks with their text, and the remaining parts."""
    if not any(block.type == TEXT for block in message.thinking):
        return list(message.thinking), deque(message.parts)
    pieces = sorted((piece_of(block), n) for n, block in enumerate(message.thinking) if block.type == TEXT)
    thinking, text, at = list(message.thinking), message.text, 0
    rest: list[str] = []
    for (start, end, _), n in pieces:
        thinking[n] = replace(thinking[n], text=text[start:end])
        rest.append(text[at:start])
        at = max(at, end)
    return thinking, deque(Text(one) for one in (*rest, text[at:]) if one)


def object_in(text: str) -> JsonObject:
    """The object in a JSON text; empty for anything else, such as arguments that were cut off."""
    return (json_object(text) if text else None) or {}


_DATA_URL: Final = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)


def images_of(message: Message) -> list[Image]:
    parts = message.parts
    # A message of one text, as most are, is looked at no further.
    return [] if len(parts) == 1 and isinstance(parts[0], Text) else [one for one in parts if isinstance(one, Image)]


def inline_image(image: Image) -> tuple[str, str] | None:
    """Media type and base64 data of an image; None if it is given by its URL."""
    if not image.url:
        return image.mime, base64.b64encode(image.data).decode()
    found = _DATA_URL.fullmatch(image.url)
    return (image.mime or found[1], found[2]) if found else None

"""Messages of a conversation, independent of the vendor. Meanings and limits are in types/v1/message.proto."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from msgspec import Struct
from turnwright_values.replies import ServerBlock, ThinkingBlock, ToolCall


class Role(Enum):
    """Who speaks in a message; the value is the word of the chat format. No vendor knows the last two."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    EVENT = "event"
    PLAN = "plan"


class Text(Struct, frozen=True, tag=True, omit_defaults=True):
    """A text. `cache`: a prompt cache breakpoint at its end."""

    text: str
    cache: bool = False


class Image(Struct, frozen=True, tag=True, omit_defaults=True):
    """An image: its bytes with their type, an address, or in a message of a run the path of its entry."""

    mime: str = ""
    data: bytes = b""
    url: str = ""
    cache: bool = False
    path: str = ""


Part = Text | Image


class Message(Struct, frozen=True, omit_defaults=True):
    """One message. Fields that only a model's reply or only a tool's answer has are empty in the others."""

    role: Role
    parts: tuple[Part, ...] = ()
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    thinking: tuple[ThinkingBlock, ...] = ()
    server_blocks: tuple[ServerBlock, ...] = ()
    citations: tuple[str, ...] = ()
    extra: str = ""
    vendor_model: str = ""
    call_id: str = ""
    tool: str = ""
    failed: bool = False

    @property
    def text(self) -> str:
        if len(self.parts) == 1 and isinstance(self.parts[0], Text):
            return self.parts[0].text
        return "".join(part.text for part in self.parts if isinstance(part, Text))


def text_message(role: Role, text: str) -> Message:
    return Message(role, (Text(text),))


_TYPES: Final = (
    ("image/png", re.compile(rb"\x89PNG\r\n\x1a\n")),
    ("image/jpeg", re.compile(rb"\xff\xd8\xff")),
    ("image/gif", re.compile(rb"GIF8[79]a")),
    ("image/webp", re.compile(rb"RIFF.{4}WEBP", re.DOTALL)),
)
"""By their magic numbers."""


def image_type(data: bytes) -> str:
    """The media type of an image that models accept; empty for any other data."""
    return next((name for name, begins in _TYPES if begins.match(data)), "")

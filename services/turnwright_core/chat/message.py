"""Messages of a conversation, whoever the vendor is. Meanings and limits stand in types/v1/message.proto."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class Role(Enum):
    """Who speaks in a message; the value is the word of the chat format. No vendor knows the last two."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    EVENT = "event"
    PLAN = "plan"


class Text(Struct, frozen=True, tag=True):
    """A text. `cache`: the vendor is asked to cache what stands up to its end."""

    text: str
    cache: bool = False


class Image(Struct, frozen=True, tag=True):
    """An image: its bytes with their type, an address, or in a message of a run the path of its entry."""

    mime: str = ""
    data: bytes = b""
    url: str = ""
    cache: bool = False
    path: str = ""


Part = Text | Image


class ToolCall(Struct, frozen=True):
    """One native call: the tool's name, and the arguments as the model wrote them, JSON text at best.

    `id` is the vendor's and may be empty, `call_id` ours; `index` the 0-based place among the calls, `block` among all
    blocks of the message.
    """

    name: str
    arguments: str
    index: int = 0
    id: str = ""
    call_id: str = ""
    signature: str = ""
    block: int | None = None


class ThinkingBlock(Struct, frozen=True):
    """A block of reasoning as its vendor wants it back. `signature` and `data` are opaque."""

    type: str
    index: int | None = None
    id: str = ""
    text: str = ""
    signature: str = ""
    data: str = ""


class ServerBlock(Struct, frozen=True):
    """What a tool of the vendor wrote: `json` is an object as it came, `index` its place among all blocks."""

    index: int
    json: str


class Message(Struct, frozen=True):
    """One message. What only a model's reply can have, or only a tool's answer, is empty in the others."""

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
        """The texts of its parts, joined."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Text):
            return self.parts[0].text
        return "".join(part.text for part in self.parts if isinstance(part, Text))


def text_message(role: Role, text: str) -> Message:
    """A message that says no more than this."""
    return Message(role, (Text(text),))

"""A message of a run, made from an entry. Meanings are in types/v1/run_message.proto."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from turnwright_core.chat.message import Message
from turnwright_core.runs import ReplyKind, Usage


class MessageKind(IntEnum):
    """The kind of a message; numbered as in the contract."""

    UNSPECIFIED = 0
    PROMPT = 1
    STEERING = 2
    SYNTHETIC = 3
    REPLY = 4
    SUMMARY = 5
    RESULT = 6
    EVENT = 7
    PLAN = 8


class MessageResult(Struct, frozen=True):
    """How a reply ended."""

    finish: str = ""
    error: str = ""
    answer: str = ""
    kind: ReplyKind = ReplyKind.REPLY


class RunMessage(Struct, frozen=True):
    """One message. `path` is its id; `position` decides the order."""

    path: str
    kind: MessageKind
    turn: int
    position: int
    create_ms: int
    message: Message
    usage: Usage | None = None
    result: MessageResult | None = None
    text_size_bytes: int = 0
    """Size of the whole text in bytes if it is truncated here; 0: it is not."""


class RecordedCall(Struct, frozen=True):
    """The tool call in the record of a command; `arguments` are JSON text."""

    tool: str
    arguments: str
    call_id: str = ""
    vendor_call_id: str = ""

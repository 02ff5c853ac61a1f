"""A message of a run: an entry of it as chat has it. Meanings stand in types/v1/run_message.proto."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from turnwright_core.chat.message import Message
from turnwright_core.runs import ReplyKind, Usage


class MessageKind(IntEnum):
    """What a message of a run is; the numbers of the contract."""

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
    """Bytes of the whole text where only its beginning is here; 0: it is whole."""


class RecordedCall(Struct, frozen=True):
    """What the record of a command says of the call that it came by; `arguments` are JSON text."""

    tool: str
    arguments: str
    call_id: str = ""
    vendor_call_id: str = ""

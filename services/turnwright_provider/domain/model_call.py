"""What a model call is and what comes of it.

Source: architecture 8; rows RD01, RD02, RD05.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from msgspec import Struct

from turnwright_core.deltas import Delta
from turnwright_core.runs import Usage


class Role(Enum):
    """Who speaks in a message; the value is the word of the chat format."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class Message(Struct, frozen=True):
    """One message of the conversation."""

    role: Role
    content: str


class ModelCall(Struct, frozen=True):
    """One request to a model. `model` is the vendor's own name for it; None leaves a setting to the vendor."""

    model: str
    messages: tuple[Message, ...]
    temperature: float | None = None
    output_tokens_max: int | None = None
    call_index: int = 0


WHOLE: Final = frozenset(
    {"", "stop", "stop_sequence", "end_turn", "end_of_turn", "eos", "eos_token", "complete", "completed"}
    | {"tool_calls", "tool_call", "tool_use", "function_call"}
)
"""Reasons, in lower case, of a reply that its model ended; each is some vendor's word."""


class Finish(Struct, frozen=True):
    """The end of a reply, in the vendor's words; the reason is empty where it gave none."""

    reason: str
    usage: Usage | None
    vendor_model: str

    @property
    def is_cut(self) -> bool:
        """Whether the vendor cut the reply off. A word that nobody knows counts: half a command may do harm."""
        return self.reason.strip().lower() not in WHOLE


class Retry(Struct, frozen=True):
    """A failed try (1-based) that will be repeated after `wait_s` seconds."""

    attempt: int
    wait_s: float
    error_class: str
    detail: str


VendorEvent = Delta | Finish
Part = Delta | Retry | Finish

"""What a model call is and what comes of it. The fold of any split of a reply's deltas is the same message.

Source: architecture 8; rows RD01, RD02, RD05.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from turnwright_core.runs import Usage
from turnwright_core.values import frozen


class Role(Enum):
    """Who speaks in a message; the value is the word of the chat format."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@frozen
class Message:
    """One message of the conversation."""

    role: Role
    content: str


@frozen
class ModelCall:
    """One request to a model. `model` is the vendor's own name for it; None leaves a setting to the vendor."""

    model: str
    messages: tuple[Message, ...]
    temperature: float | None = None
    output_tokens_max: int | None = None
    call_index: int = 0


@frozen
class AppendContent:
    """Text to add to the content."""

    text: str


@frozen
class AppendReasoning:
    """Text to add to the reasoning."""

    text: str


@frozen
class ToolCall:
    """One native call; `id` is the vendor's and may be empty, `arguments` is JSON text as the model wrote it."""

    index: int
    id: str
    name: str
    arguments: str


@frozen
class SetToolCalls:
    """The calls so far; replaces the list."""

    calls: tuple[ToolCall, ...]


@frozen
class SetUsage:
    """The consumption so far."""

    usage: Usage


WHOLE: Final = frozenset(
    {"", "stop", "stop_sequence", "end_turn", "end_of_turn", "eos", "eos_token", "complete", "completed"}
    | {"tool_calls", "tool_call", "tool_use", "function_call"}
)
"""Reasons, in lower case, of a reply that its model ended; each is some vendor's word."""


@frozen
class Finish:
    """The end of a reply, in the vendor's words; the reason is empty where it gave none."""

    reason: str
    usage: Usage | None
    vendor_model: str

    @property
    def is_cut(self) -> bool:
        """Whether the vendor cut the reply off. A word that nobody knows counts: half a command may do harm."""
        return self.reason.strip().lower() not in WHOLE


@frozen
class Retry:
    """A failed try (1-based) that will be repeated after `wait_s` seconds."""

    attempt: int
    wait_s: float
    error_class: str
    detail: str


Delta = AppendContent | AppendReasoning | SetToolCalls | SetUsage
VendorEvent = Delta | Finish
Part = Delta | Retry | Finish

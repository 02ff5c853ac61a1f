"""The call of a model, from the executor to the provider, and the parts of its reply, as values.

A provider in the same process gets these; over the network they become the messages of provider_service.proto, where
meanings and limits are (turnwright_core.wire.model_calls).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct, field

from turnwright_core.chat.deltas import Delta
from turnwright_core.chat.message import Message
from turnwright_core.models import Model, Reasoning
from turnwright_core.runs import AnswerFormat, Usage

REFUSED_BLOCKS: Final = "refused_blocks"
REFUSED_IMAGES: Final = "refused_images"
REFUSED_SILENCE: Final = "refused_silence"
REFUSABLE: Final = frozenset({REFUSED_BLOCKS, REFUSED_IMAGES, REFUSED_SILENCE})
"""What a vendor may refuse of a conversation: names in GenerateCall.refused and Dropped.field."""


class ToolDefinition(Struct, frozen=True):
    """A tool as it is offered to a model; `parameters` is the text of a JSON Schema, empty if it has none."""

    name: str
    description: str
    parameters: str = ""
    strict: bool = False
    cache: bool = False


class ToolChoice(Struct, frozen=True):
    """Whether a model must call, or the one tool that it must call."""

    mode: Literal["auto", "none", "required"] = "auto"
    tool: str = ""
    single: bool = False


class GenerateCall(Struct, frozen=True):
    """GenerateRequest. None leaves a setting to the vendor."""

    model: Model
    messages: tuple[Message, ...]
    temperature: float | None = None
    output_tokens_max: int | None = None
    call_index: int = 0
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice | None = None
    stop: tuple[str, ...] = ()
    response_format: AnswerFormat | None = None
    reasoning: Reasoning | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    extra: str = ""
    refused: tuple[str, ...] = ()


class Retry(Struct, frozen=True, tag=True):
    """A failed attempt (1-based) that will be repeated after `wait_s` seconds; `usage`: what it consumed, if known.

    `refused`: what the next attempt leaves out of the conversation.
    """

    attempt: int
    wait_s: float
    error_class: str
    detail: str
    usage: Usage | None = None
    refused: tuple[str, ...] = ()


class Dropped(Struct, frozen=True):
    """A field of a call that does not reach the vendor, and why, in a sentence."""

    field: str
    reason: str


class Finished(Struct, frozen=True, tag=True):
    """The end of a reply. `cut`: the vendor cut it off. The reason is empty where the vendor gave none."""

    reason: str
    usage: Usage | None
    vendor_model: str
    cut: bool
    dropped: tuple[Dropped, ...] = ()


GeneratePart = Delta | Retry | Finished
"""GenerateResponse."""

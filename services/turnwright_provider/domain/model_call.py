"""Model calls and their results; meanings and limits are in provider_service.proto.

Source: architecture 8; rows RD01, RD02, RD05.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, TypeVar

from msgspec import Struct, field
from turnwright_values.provider import Finish, Retry

from turnwright_core.chat.deltas import Delta
from turnwright_core.chat.message import Image, Message
from turnwright_core.json_text import JsonMapping
from turnwright_core.models import Reasoning, ToolChoice
from turnwright_provider.domain.model_info import UNKNOWN, ModelInfo

V = TypeVar("V")


class ToolSpec(Struct, frozen=True):
    """A Tool of the request whose `parameters`, a JSON Schema, are parsed and checked."""

    name: str
    description: str
    parameters: JsonMapping
    strict: bool = False
    cache: bool = False


class ToolList(Struct, frozen=True):
    """A list of tools, and what was made of it, so that calls that name the same list need not make it again."""

    tools: tuple[ToolSpec, ...] = ()
    made: dict[Hashable, Any] = field(default_factory=dict)
    """Few: the encodings of a wire, and counts of tokens."""


class ResponseFormat(Struct, frozen=True):
    """The ResponseFormat of the request, whose schema is parsed and checked; without one any JSON object."""

    schema: JsonMapping | None = None
    name: str = "answer"
    strict: bool = False


class ModelCall(Struct, frozen=True):
    """A checked GenerateRequest: its JSON is parsed, and `model` is the vendor's own name for it.

    None leaves a setting to the vendor. `vendor_model` is `vendor/model`, the author in messages, `info` what the
    caller knows about the model, `refused` what its vendor has refused of the conversation.
    """

    model: str
    messages: tuple[Message, ...]
    temperature: float | None = None
    output_tokens_max: int | None = None
    call_index: int = 0
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice | None = None
    stop: tuple[str, ...] = ()
    response_format: ResponseFormat | None = None
    reasoning: Reasoning | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    extra: JsonMapping = field(default_factory=dict)
    vendor_model: str = ""
    alias: str = ""
    """Under which the model is configured; empty, or `vendor/model`, if only its caller knows it."""
    info: ModelInfo = UNKNOWN
    refused: frozenset[str] = frozenset()
    of_tools: dict[Hashable, Any] = field(default_factory=dict)
    """`ToolList.made` of its tools."""

    def from_tools(self, key: Hashable, make: Callable[[], V]) -> V:
        """What `make` makes of the tools alone, once for all calls with this list."""
        if key not in self.of_tools:
            self.of_tools[key] = make()
        made: V = self.of_tools[key]
        return made

    @property
    def unsupported_fields(self) -> frozenset[str]:
        """The fields that the model is known not to support."""
        can = self.info.capabilities
        supported = {"reasoning": can.reasoning, "response_format": can.response_format}
        return frozenset(name for name, has in supported.items() if has is False)

    @property
    def asked(self) -> frozenset[str]:
        """Those of its fields that can be left out, by the names that `required` and Dropped have for them."""
        parts = [part for message in self.messages for part in message.parts]
        asked = {
            "temperature": self.temperature is not None,
            "output_tokens_max": self.output_tokens_max is not None,
            "tools": bool(self.tools),
            "tool_choice": self.tool_choice is not None,
            "stop": bool(self.stop),
            "response_format": self.response_format is not None,
            "reasoning": self.reasoning is not None,
            "metadata": bool(self.metadata),
            "images": any(isinstance(part, Image) for part in parts),
            "cache": any(part.cache for part in parts) or any(tool.cache for tool in self.tools),
        }
        return frozenset(name for name, is_asked in asked.items() if is_asked)


WHOLE: Final = frozenset(
    {"", "stop", "stop_sequence", "end_turn", "end_of_turn", "eos", "eos_token", "complete", "completed"}
    | {"tool_calls", "tool_call", "tool_use", "function_call"}
)
"""Reasons, in lower case, of a reply that its model ended; each is some vendor's word."""


def was_cut(finish: Finish) -> bool:
    """Whether a reply was truncated. Unknown reasons count as truncated: half a command may do harm."""
    return finish.reason.strip().lower() not in WHOLE


VendorEvent = Delta | Finish
ReplyPart = Delta | Retry | Finish

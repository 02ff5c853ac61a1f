"""The wires by name. Each is imported with the first endpoint that uses it."""
# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from turnwright_core.runs import Reasoning
    from turnwright_provider.domain.think_tags import ThinkTags
    from turnwright_provider.domain.wires.reasoning_fields import ReasoningFields
    from turnwright_provider.domain.wires.wire import Wire


class WireOptions(Struct, frozen=True):
    """Options of an endpoint's wire.

    `asking`: the request fields for reasoning in chat completions; `amount`: its default amount; `marks`: the service
    supports cache marks.
    """

    think_tags: ThinkTags
    asking: ReasoningFields
    amount: Reasoning | None = None
    marks: bool = False


def _chat(manner: WireOptions) -> Wire:
    from turnwright_provider.domain.wires.chat import ChatWire

    return ChatWire(manner.think_tags, manner.asking, manner.amount, marks=manner.marks)


def _responses(manner: WireOptions) -> Wire:
    from turnwright_provider.domain.wires.responses import ResponsesWire

    return ResponsesWire(manner.amount)


def _anthropic(manner: WireOptions) -> Wire:
    from turnwright_provider.domain.wires.anthropic import AnthropicWire

    return AnthropicWire(manner.amount)


def _gemini(manner: WireOptions) -> Wire:
    from turnwright_provider.domain.wires.gemini import GeminiWire

    return GeminiWire(manner.amount)


def _ollama(manner: WireOptions) -> Wire:
    from turnwright_provider.domain.wires.ollama import OllamaWire

    return OllamaWire(manner.think_tags, manner.amount)


WIRES: Final[Mapping[str, Callable[[WireOptions], Wire]]] = {
    "chat": _chat,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "ollama": _ollama,
}
"""Name -> what makes it."""

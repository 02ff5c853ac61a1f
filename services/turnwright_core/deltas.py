"""Increments of a model's reply, and their fold: one pair for the provider, the executor and the client library.

Folding any split of the same stream gives the same reply.
Source: architecture 8; rows RD01, RD02, RD05, RE08.
"""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import astuple

from turnwright_core.runs import Usage


class AppendContent(Struct, frozen=True):
    """Text to add to the content."""

    text: str


class AppendReasoning(Struct, frozen=True):
    """Text to add to the reasoning."""

    text: str


class ToolCall(Struct, frozen=True):
    """One native call: the tool's name, and the arguments as the model wrote them, JSON text at best.

    `id` is the vendor's and may be empty, `index` the 0-based place in the reply.
    """

    name: str
    arguments: str
    index: int = 0
    id: str = ""


class SetToolCalls(Struct, frozen=True):
    """The calls so far; replaces the list."""

    calls: tuple[ToolCall, ...]


class SetUsage(Struct, frozen=True):
    """The consumption so far."""

    usage: Usage


Delta = AppendContent | AppendReasoning | SetToolCalls | SetUsage


class PartialReply(Struct):
    """A reply as far as it has come. Texts are kept in pieces: joining them each time would be quadratic."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)

    @property
    def text(self) -> str:
        """The content so far."""
        return "".join(self.content)

    @property
    def thoughts(self) -> str:
        """The reasoning so far."""
        return "".join(self.reasoning)

    def add(self, delta: Delta) -> None:
        """Grow by one increment."""
        match delta:
            case AppendContent(text):
                self.content.append(text)
            case AppendReasoning(text):
                self.reasoning.append(text)
            case SetToolCalls(calls):
                self.calls = calls
            case SetUsage(usage):
                self.usage = _larger(self.usage, usage)


def _larger(one: Usage, other: Usage) -> Usage:
    """Each field the larger of two; a cost that only one of them knows is that one's."""
    if one == Usage():
        return other
    pairs = zip(astuple(one), astuple(other), strict=True)
    return Usage(*(max(a, b) if a is not None and b is not None else b if a is None else a for a, b in pairs))

"""Models that runs may name, what they can do, and how much they shall reason."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from turnwright_values.types import Model

PRICE_USD_MAX: Final = 1_000_000
"""Every price is below this: US dollars for a million tokens."""


def window_of(model: Model) -> int:
    """The context window to use: a refusal's, until another one is configured; 0: unknown."""
    reported = model.reported_window
    if reported and reported.known_length == model.context_length:
        return reported.context_length
    return model.context_length


Effort = Literal["off", "low", "medium", "high"]

EFFORT_TOKENS: Final[Mapping[Effort, int]] = MappingProxyType({"off": 0, "low": 1024, "medium": 8192, "high": 24576})
"""Tokens for each level, for vendors that take a number."""


class Reasoning(Struct, frozen=True, omit_defaults=True):
    """How much a model should reason: a level, or a number of tokens."""

    effort: Effort | None = None
    tokens: int = 0

    @property
    def budget_tokens(self) -> int:
        """The number of tokens, or that of the level; 0 is off."""
        return self.tokens if self.effort is None else EFFORT_TOKENS[self.effort]

    @property
    def word(self) -> Effort:
        """The level, or the one closest to the number of tokens."""
        if self.effort is not None:
            return self.effort
        return min(EFFORT_TOKENS, key=lambda word: abs(EFFORT_TOKENS[word] - self.tokens))

    def __str__(self) -> str:
        return self.effort or f"{self.tokens} tokens"


class ToolChoice(Struct, frozen=True):
    """Whether a model must call, or the one tool that it must call."""

    mode: Literal["auto", "none", "required"] = "auto"
    tool: str = ""
    single: bool = False

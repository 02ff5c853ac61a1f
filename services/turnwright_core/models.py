"""Models that runs may name, what they can do, and how much they shall reason."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import astuple


class Capabilities(Struct, frozen=True, omit_defaults=True):
    """What a model can do; None where nobody says."""

    tools: bool | None = None
    images: bool | None = None
    reasoning: bool | None = None
    response_format: bool | None = None
    prefill: bool | None = None

    def or_else(self, other: Capabilities) -> Capabilities:
        """With what another says where this one says nothing."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Capabilities(*(theirs if ours is None else ours for ours, theirs in pairs))


class ReportedWindow(Struct, frozen=True):
    """The window in tokens that a vendor named in the refusal of a turn, and the one that was known then; 0: none."""

    context_length: int
    known_length: int = 0
    run: str = ""
    turn: int = 0


PRICE_USD_MAX: Final = 1_000_000
"""Every price is below this: US dollars for a million tokens."""


class Price(Struct, frozen=True):
    """US dollars for a million tokens of each kind."""

    input_usd: float
    cached_usd: float
    output_usd: float


class Model(Struct, frozen=True):
    """A model that runs may name; context length and output limit in tokens, 0 when unknown."""

    alias: str
    vendor_model: str
    context_length: int = 0
    output_tokens_max: int = 0
    capabilities: Capabilities = Capabilities()
    reported_window: ReportedWindow | None = None
    price: Price | None = None

    @property
    def window(self) -> int:
        """The context window to use: a refusal's, until another one is configured; 0: unknown."""
        reported = self.reported_window
        if reported and reported.known_length == self.context_length:
            return reported.context_length
        return self.context_length


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

"""Models that runs may name, and what they can do."""

from __future__ import annotations

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


class Model(Struct, frozen=True):
    """A model that runs may name; context length and output limit in tokens, 0 when unknown."""

    alias: str
    vendor_model: str
    context_length: int = 0
    output_tokens_max: int = 0
    capabilities: Capabilities = Capabilities()

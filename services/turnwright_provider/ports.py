"""The port of the provider: vendors. Source: house 2."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from turnwright_provider.domain.model_call import ModelCall, VendorEvent
from turnwright_provider.domain.model_info import UNKNOWN, ModelInfo


class VendorState(Struct, frozen=True):
    """Whether a vendor can be called. `endpoint` has no secrets; `settings` are those that `problem` is about.

    `is_unset`: nobody has configured it; `key_setting` tells people where its key is set.
    """

    endpoint: str
    problem: str = ""
    settings: tuple[str, ...] = ()
    is_unset: bool = False
    key_setting: str = ""
    reports_cost: bool = True
    """Whether it may report the cost of a call."""


class ModelCheck(Struct, frozen=True):
    """What a vendor says about one model: what is wrong (empty: nothing), and its metadata."""

    problem: str = ""
    info: ModelInfo = UNKNOWN


class Vendor(Protocol):
    """Answers calls to models of one name. One file in `vendors/` each, or a plugin's."""

    def describe(self) -> VendorState:
        """Whether it is configured, and where it is reached. No network."""

    def stream(self, call: ModelCall, attempt: int) -> AsyncGenerator[VendorEvent, None]:
        """One attempt (1-based) at a call: deltas, then exactly one Finish. Raises VendorError."""

    async def check(self, models: Sequence[str]) -> Sequence[ModelCheck]:
        """What is wrong with each model, and its metadata. Costs no tokens."""


@runtime_checkable
class TokenCounter(Protocol):
    """A vendor that counts the tokens of calls itself."""

    async def count_tokens(self, call: ModelCall) -> int | None:
        """The input tokens of a call; None where it does not say. Costs no tokens. Raises nothing."""

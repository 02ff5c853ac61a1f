"""The ports to the provider: streaming model calls, and which vendors there are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from turnwright_values.types import Model, TokenSource, TurnRequest

from turnwright_core.chat.message import Image, Message
from turnwright_core.model_calls import GeneratePart
from turnwright_executor.ports.packets import AssembledMessage


class Models(Protocol):
    """The provider."""

    async def describe(self, model: Model) -> Model:
        """The model, completed by what its vendor reports. Unchanged if nobody answers in time. Never raises."""

    async def count_tokens(
        self, model: Model, messages: Sequence[AssembledMessage], images: Sequence[Image], near: int
    ) -> tuple[int, TokenSource] | None:
        """Input tokens of a call, and how they were counted; None if nobody says in time. Raises nothing.

        `near` is what they will be compared with.
        """

    def generate(
        self,
        model: Model,
        messages: Sequence[AssembledMessage],
        request: TurnRequest,
        call_index: int,
        *,
        images: Sequence[Image] = (),
        refused: tuple[str, ...] = (),
        limits_cost: bool,
    ) -> AbstractAsyncContextManager[AsyncIterator[GeneratePart]]:
        """One streaming model call, which ends after Finished, and with the block. Iterating raises TurnwrightError.

        `images` go with the user's message; the call is refused if the model takes none. `refused` is what the vendor
        has refused of the conversation before. With `limits_cost` the call is refused if its cost would be unknown.
        """

    def ask(
        self,
        model: Model,
        messages: Sequence[Message],
        output_tokens_max: int,
        call_index: int,
        *,
        temperature: float | None,
        limits_cost: bool,
    ) -> AbstractAsyncContextManager[AsyncIterator[GeneratePart]]:
        """One call with a conversation that is no packet. As `generate`."""


CheckVendor = Callable[[str, str], Awaitable[None]]
"""Refuses a `vendor/model` of an unknown vendor, naming the request's field. Raises INVALID_FIELD."""

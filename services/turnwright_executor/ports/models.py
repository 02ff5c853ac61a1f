"""What the executor needs from the provider: one model call as it streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from msgspec import Struct

from turnwright_core.chat.deltas import Delta
from turnwright_core.chat.message import Image
from turnwright_core.runs import Model, TurnRequest, Usage
from turnwright_executor.ports.packets import PacketMessage


class RetryNotice(Struct, frozen=True):
    """A failed try that will be repeated in `wait_s` seconds."""

    wait_s: float
    error_class: str
    detail: str


class Finished(Struct, frozen=True):
    """The end of a reply: the vendor's reason, whether it cut the reply off, and the fields that it did not get."""

    reason: str
    usage: Usage | None
    is_cut: bool = False
    vendor_model: str = ""
    dropped: tuple[str, ...] = ()


ModelEvent = Delta | RetryNotice | Finished


class Models(Protocol):
    """The provider."""

    async def describe(self, model: Model) -> Model:
        """The model with what its vendor says of it where its alias does not.

        As it is where nobody says anything in time. Raises nothing.
        """
        ...

    def generate(
        self,
        model: Model,
        messages: Sequence[PacketMessage],
        request: TurnRequest,
        call_index: int,
        *,
        images: Sequence[Image] = (),
        limits_cost: bool,
    ) -> AsyncGenerator[ModelEvent, None]:
        """One model call as it streams; ends after Finished. Close it where you leave it. Raises TurnwrightError.

        `images` go with the user's message, and the call is refused where the model takes none. `limits_cost`: it is
        refused where nobody will say what it cost.
        """
        ...

"""A vendor that is not configured: it is listed with what is missing, and calls to it fail.

Source: RU306.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from turnwright_provider.domain.failures import FailureClass, failed
from turnwright_provider.domain.model_call import ModelCall, VendorEvent
from turnwright_provider.ports import ModelCheck, VendorState


class UnconfiguredVendor:
    """Stands in for a vendor that cannot be called."""

    def __init__(self, state: VendorState) -> None:
        self._state = state

    def describe(self) -> VendorState:
        return self._state

    async def stream(self, call: ModelCall, attempt: int) -> AsyncGenerator[VendorEvent, None]:
        """Raise VendorError; callers check `describe` first."""
        raise failed(FailureClass.INVALID, f"try {attempt} for {call.model}: {self._state.problem}")
        yield  # type: ignore[unreachable]  # makes this an async generator, as the port wants

    async def check(self, models: Sequence[str]) -> list[ModelCheck]:
        return [ModelCheck(self._state.problem) for _ in models]

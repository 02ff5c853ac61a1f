"""Timeouts that measure progress of the reply instead of bytes.

Routers send comments while a model is queued, and a server can send a byte now and then forever. Until the reply
begins, such signs of life double the time limit; from then on only more of the reply counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from turnwright_provider.domain.failures import Failure, FailureClass, VendorError

SILENCES_BEFORE_TOKEN: Final = 2
"""Multiple of the silence timeout that the first token may take."""

END_S: Final = 30.0
"""Seconds to wait for more, such as the usage, after a stop reason. Some servers give one with every piece."""

T = TypeVar("T")


class AttemptTimeout:
    """The time left for one attempt; only time spent waiting for the vendor counts."""

    def __init__(self, silence_s: float) -> None:
        """`silence_s` is the longest time without progress once the reply has begun, in seconds."""
        self._silence_s = silence_s
        self._limit_s = SILENCES_BEFORE_TOKEN * silence_s
        self._left_s = self._limit_s
        self._progress = 0

    def note_progress(self, progress: int, *, is_ended: bool = False) -> None:
        """Note how far the reply has come; any change is progress. `is_ended`: it has a stop reason."""
        if progress != self._progress:
            self._progress = progress
            self._limit_s = self._left_s = min(self._silence_s, END_S) if is_ended else self._silence_s

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Await the vendor. Raises VendorError on timeout."""
        clock = asyncio.get_running_loop().time
        begin_s = clock()
        try:
            async with asyncio.timeout(self._left_s) as limit:
                return await awaitable
        except TimeoutError:
            if not limit.expired():
                raise
            what = "more of the reply" if self._progress else "a token"
            detail = f"waited {self._limit_s:g} s for {what}"
            raise VendorError(Failure(FailureClass.TIMEOUT, detail, timeout_s=self._limit_s)) from None
        finally:
            self._left_s -= clock() - begin_s

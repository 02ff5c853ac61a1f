"""Calls that wait until services answer: what an editor has decided, or is to be told, is not lost with one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from turnwright_core.errors import DeadlineError, UnavailableError
from turnwright_kit.logs import get_logger

T = TypeVar("T")
_log = get_logger("acp")

PAUSE_S: Final = 1.0
"""Seconds between attempts."""


async def insisted(call: Callable[[], Awaitable[T]]) -> T:
    """What a call answers once services do; whoever no longer wants it cancels it. Raises TurnwrightError."""
    while True:
        try:
            return await call()
        except (UnavailableError, DeadlineError) as error:
            _log.warning("call_failed", reason=error.reason.name)
        await asyncio.sleep(PAUSE_S)

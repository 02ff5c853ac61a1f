"""Watches that clients hold across runs: they follow the store, and end together when the executor drains."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

from turnwright_core.errors import Reason, fault

T = TypeVar("T")


class OpenWatches:
    """The common end of the watches of this executor."""

    def __init__(self) -> None:
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End all watches."""
        self._closing.set()

    async def follow(self, source: AsyncGenerator[T], silence_s: float | None = None) -> AsyncGenerator[T | None]:
        """What comes, and None after each `silence_s` seconds without anything. Raises DRAINING.

        Whoever opened the source closes it.
        """
        coming: asyncio.Future[T | None] | None = None
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(source, None))
                await asyncio.wait((coming, closing), timeout=silence_s, return_when=asyncio.FIRST_COMPLETED)
                if closing.done():
                    raise fault(Reason.DRAINING, "The executor is shutting down: call the watch again.")
                if not coming.done():
                    yield None
                    continue
                if (item := coming.result()) is None:
                    return
                coming = None
                yield item
        finally:
            waiting = [task for task in (coming, closing) if task]
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

"""Watches of clients that are not of one run: they follow the store, and all end when the executor drains."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

from turnwright_core.errors import Reason, fault

T = TypeVar("T")


class OpenWatches:
    """The open watches of this executor, to end them together. `heartbeat_s`: the interval of heartbeats in seconds."""

    def __init__(self, heartbeat_s: float) -> None:
        self.heartbeat_s = heartbeat_s
        self._closing = asyncio.Event()

    def close(self) -> None:
        self._closing.set()

    async def follow(self, source: AsyncGenerator[T], silence_s: float | None = None) -> AsyncGenerator[T | None]:
        """The items, and None after each `silence_s` seconds without one. Raises DRAINING.

        The caller closes the source.
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

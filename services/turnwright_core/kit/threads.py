"""Threads for what may block: at most so many at the same time, apart from all others, and no exit waits for them.

A thread cannot be stopped from outside. One that does not come back is left alone: it is a daemon, and holds one of a
bounded number of places until it does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """Places for threads of one kind. For one event loop."""

    def __init__(self, name: str, most: int) -> None:
        """At most so many run at the same time; further calls wait for a place."""
        self._name = name
        self._places = asyncio.Semaphore(most)

    async def run(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """What a function returns that is called in a thread of its own; raises what it raises.

        A caller that is cancelled does not wait; the place is taken until the function has returned.
        """
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def settle(settled: Callable[[], None]) -> None:
            self._places.release()
            if not answer.done():
                settled()

        def run() -> None:
            try:
                result = function(*arguments, **options)
                settled: Callable[[], None] = lambda: answer.set_result(result)  # noqa: E731
            except BaseException as raised:  # noqa: BLE001 - a thread's exception belongs to its caller
                error = _carried(raised)
                settled = lambda: answer.set_exception(error)  # noqa: E731
            with suppress(RuntimeError):  # the loop may have ended since
                loop.call_soon_threadsafe(settle, settled)

        threading.Thread(target=run, name=self._name, daemon=True).start()
        return await answer


def _carried(error: BaseException) -> BaseException:
    """The error as a future can hold it: StopIteration would end the coroutine that waits, SystemExit the process."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")

"""A bounded pool of daemon threads for blocking calls; process exit does not wait for them.

A thread cannot be stopped from outside. One that hangs is abandoned: it is a daemon, and occupies one of a bounded
number of slots. (A ThreadPoolExecutor joins its threads at exit.)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_Job = Callable[[], None]

IDLE_S: Final = 5.0
"""Seconds after which an idle thread ends."""


class DaemonThreadPool:
    """Slots for threads of one kind. For one event loop."""

    def __init__(self, name: str, most: int, idle_s: float = IDLE_S) -> None:
        """At most this many run at the same time; further calls wait for a slot."""
        self._name, self._idle_s = name, idle_s
        self._places = asyncio.Semaphore(most)
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._idle = threading.Semaphore(0)

    async def run(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Call a function in a thread; returns or raises what it does.

        A cancelled caller does not wait; the slot stays occupied until the function has returned.
        """
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        # A caller that is dropped, as when its loop ends, never asks for the error.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())

        def settle(settled: _Job) -> None:
            self._places.release()
            if not answer.done():
                settled()

        def run() -> None:
            try:
                result = function(*arguments, **options)
                settled: _Job = lambda: answer.set_result(result)  # noqa: E731
            except BaseException as raised:  # noqa: BLE001 - a thread's exception belongs to its caller
                error = _carried(raised)
                settled = lambda: answer.set_exception(error)  # noqa: E731
            self._idle.release()
            with suppress(RuntimeError):  # the loop may have ended since
                loop.call_soon_threadsafe(settle, settled)

        self._jobs.put(run)
        if not self._idle.acquire(blocking=False):
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return await answer

    def _work(self) -> None:
        """Run jobs until there has been none for a while. An idle thread waits on the semaphore for the next job."""
        while True:
            try:
                self._jobs.get(timeout=self._idle_s)()
            except Empty:
                if self._idle.acquire(blocking=False):
                    return


def _carried(error: BaseException) -> BaseException:
    """The error as a future can hold it: StopIteration would end the awaiting coroutine, SystemExit the process."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")

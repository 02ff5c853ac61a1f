"""Bounded queues: writes for the single writer, reads for the next free reader.

There is no artificial delay: under load the next batch gathers while the last one is being written. Source:
architecture 3, 12.2; docs/adr/0003.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import accumulate, islice, takewhile
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from turnwright_values.store import Durability

from turnwright_core.errors import Reason, fault
from turnwright_store.edge.batch import Job
from turnwright_store.edge.thread import Link, ThreadConnection
from turnwright_store.edge.wakeups import Wakeups
from turnwright_store.ports import Work

T = TypeVar("T")
L = TypeVar("L", bound=Link)


Post = Callable[[list[Job[Any]], Callable[[], None]], None]
"""Commits a batch, which leaves a result or an error in each job; then calls the function in the event loop."""

INLINE_MAX: Final = 32
"""Maximum number of small requests committed together in the event loop, which is blocked meanwhile."""


LOCKS_MAX: Final = 1000
"""Maximum number of locks for a batch of several requests: a server has some thousand for all clients."""


class WriteQueue:
    """Takes all waiting writes, up to a limit, and commits them as one batch."""

    def __init__(self, post: Post, wakeups: Wakeups, *, queue_max: int, batch_max: int) -> None:
        """`queue_max` limits waiting requests, `batch_max` the size of a group commit."""
        self._post = post
        self._wakeups = wakeups
        self._queue_max = queue_max
        self._batch_max = batch_max
        self._jobs: deque[Job[Any]] = deque()
        self._closing = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def close(self) -> None:
        """Accept no more, and write what waits."""
        self._closing = True
        await self._idle.wait()

    async def put(self, work: Work[T], durability: Durability, locks: Collection[str], *, inline: bool = False) -> T:
        """Queue a write; returns its result after the commit. Raises QUEUE_FULL, DRAINING, and what it raises."""
        if self._closing:
            raise fault(Reason.DRAINING, "The store is shutting down: retry.")
        if len(self._jobs) >= self._queue_max:
            raise _queue_full("writer", self._queue_max)
        loop = asyncio.get_running_loop()
        job: Job[T] = Job(work, durability, locks, loop.create_future(), inline)
        self._jobs.append(job)
        if self._idle.is_set():
            self._idle.clear()
            # Requests of the same iteration of the event loop share the batch.
            loop.call_soon(self._next)
        return await job.answer

    def _next(self) -> None:
        """Pass the next batch to the idle writer."""
        if not self._jobs:
            self._idle.set()
            return
        batch = [self._jobs.popleft() for _ in range(self._batch_size())]
        self._post(batch, partial(self._done, batch))

    def _batch_size(self) -> int:
        """Size of the next batch: small requests are not delayed by large ones."""
        waiting = len(self._jobs)
        if waiting == 1:
            return 1
        inline = sum(1 for _ in islice(takewhile(attrgetter("inline"), self._jobs), INLINE_MAX))
        return inline or self._full_batch_size()

    def _full_batch_size(self) -> int:
        names = accumulate(len(job.locks) for job in islice(self._jobs, self._batch_max))
        return max(1, sum(1 for _ in takewhile(LOCKS_MAX.__ge__, names)))

    def _done(self, batch: list[Job[Any]]) -> None:
        self._next()
        for job in batch:
            self._wakeups.wake(job.bumped, job.deltas)
        for job in batch:
            job.reply()


class ReadQueue(Generic[L]):
    """Gives each read the most recently used free reader, whose caches are warm."""

    def __init__(self, queue_max: int) -> None:
        self._queue_max = queue_max
        self._waiting = 0
        self._idle: asyncio.LifoQueue[ThreadConnection[L]] = asyncio.LifoQueue()

    def start(self, readers: Iterable[ThreadConnection[L]]) -> None:
        for reader in readers:
            self._idle.put_nowait(reader)

    async def run(self, function: Callable[[L], T], *, inline: bool = False) -> T:
        """Run a function in the thread of a free reader, or `inline` if one is free without waiting.

        Raises QUEUE_FULL, and what the function raises.
        """
        if inline and not self._idle.empty():
            reader = self._idle.get_nowait()
            try:
                return function(reader.link)
            finally:
                self._idle.put_nowait(reader)
        if self._waiting >= self._queue_max:
            raise _queue_full("readers", self._queue_max)
        self._waiting += 1
        try:
            reader = await self._idle.get()
        finally:
            self._waiting -= 1
        is_free = True
        try:
            return await reader.run(function)
        except asyncio.CancelledError:
            # The caller is gone but the thread is still busy with the connection.
            is_free = False
            reader.post(_nothing, partial(self._idle.put_nowait, reader))
            raise
        finally:
            if is_free:
                self._idle.put_nowait(reader)


def _nothing(_link: Link) -> None:
    """Run after everything that is queued for a thread."""


def _queue_full(queue: str, limit: int) -> Exception:
    return fault(Reason.QUEUE_FULL, "The store is overloaded: retry in a moment.", queue=queue, limit=limit)

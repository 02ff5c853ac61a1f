"""The bounded queue of the single writer.

There is no artificial delay: under load the next batch gathers while the last one is being written. Source:
architecture 3, 12.2; docs/adr/0003.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from itertools import accumulate, islice, takewhile
from typing import Any, Final, TypeVar

from turnwright_values.store import Durability

from turnwright_core.errors import Reason, fault
from turnwright_store.edge.batch import Job
from turnwright_store.edge.readers import queue_full
from turnwright_store.edge.wakeups import Wakeups
from turnwright_store.ports import Work

T = TypeVar("T")


Post = Callable[[Callable[[], None], Callable[[], None]], None]
"""Calls a function in the writer's thread, then another one in the event loop."""

Write = Callable[[list[Job[Any]]], None]
"""Commits a batch, which leaves a result or an error in each job."""

LOCKS_MAX: Final = 1000
"""Maximum number of locks for a batch of several requests: a server has some thousand for all clients."""


class WriteQueue:
    """Takes all waiting writes, up to a limit, and commits them as one batch."""

    def __init__(self, post: Post, write: Write, wakeups: Wakeups, *, queue_max: int, batch_max: int) -> None:
        """`queue_max` limits waiting requests, `batch_max` the size of a group commit."""
        self._post, self._write = post, write
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

    async def put(self, work: Work[T], durability: Durability, locks: Collection[str]) -> T:
        """Queue a write; returns its result after the commit. Raises QUEUE_FULL, DRAINING, and what it raises."""
        if self._closing:
            raise fault(Reason.DRAINING, "The store is shutting down: retry.")
        if len(self._jobs) >= self._queue_max:
            raise queue_full("writer", self._queue_max)
        loop = asyncio.get_running_loop()
        job: Job[T] = Job(work, durability, locks, loop.create_future())
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
        self._post(partial(self._write, batch), partial(self._done, batch))

    def _batch_size(self) -> int:
        names = accumulate(len(job.locks) for job in islice(self._jobs, self._batch_max))
        return max(1, sum(1 for _ in takewhile(LOCKS_MAX.__ge__, names)))

    def _done(self, batch: list[Job[Any]]) -> None:
        self._next()
        for job in batch:
            self._wakeups.wake(job.bumped, job.deltas)
        for job in batch:
            job.reply()

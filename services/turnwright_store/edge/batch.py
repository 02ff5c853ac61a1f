"""Group commit: a bounded queue of the writes that wait, and one batch of them as one transaction, by the writer.

There is no artificial delay: under load the next batch gathers while the last one is being written. It is the same for
every database. Every exception of a request is passed to its caller; those of the whole transaction are handled by the
database's writer. Source: architecture 3, 12.2; docs/adr/0003.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, islice, takewhile
from typing import Any, Final, Generic, Protocol, TypeVar

from msgspec import Struct, field
from sqlalchemy import Connection
from turnwright_values.store import Durability

from turnwright_core.errors import Reason, fault
from turnwright_store.edge.readers import queue_full
from turnwright_store.edge.thread import CaughtError
from turnwright_store.edge.wakeups import Wakeups
from turnwright_store.ports import ScopeDelta, Transaction, Work

T = TypeVar("T")


class Job(Struct, Generic[T]):
    """One request that waits for the writer; filled in by the thread, answered by the event loop."""

    work: Work[T]
    durability: Durability
    locks: Collection[str]
    answer: asyncio.Future[T]
    result: T | None = None
    error: Exception | None = None
    bumped: set[int] = field(default_factory=set)
    deltas: Mapping[int, ScopeDelta] = field(default_factory=dict)
    """Commit deltas for followers of the scopes."""

    def reply(self) -> None:
        """Pass on the result; a caller that has been cancelled does not get it."""
        if self.answer.done():
            return
        if self.error is not None:
            self.answer.set_exception(self.error)
        else:
            self.answer.set_result(self.result)  # type: ignore[arg-type] # None is a T where the work returns None


class BatchTransaction(Protocol):
    """A writer's transaction, in the terms of its database."""

    @property
    def is_followed(self) -> Callable[[int], bool]:
        """Whether a watcher in this process follows a scope."""

    @property
    def core(self) -> Connection:
        """The connection for the requests."""

    def begin(self, batch: Sequence[Job[Any]]) -> Callable[[], int]:
        """Begin, with the batch's locks; returns the time of its writes, in milliseconds since 1970."""

    def entry_ids(self, count: int) -> Sequence[int]:
        """Allocate this many entry ids; those of an undone request are lost."""

    def try_lock(self, name: str) -> bool:
        """Try to take one more lock without waiting; returns whether it is held."""

    def savepoint(self, name: str) -> None:
        """Set a savepoint for a request."""

    def release(self, name: str) -> None:
        """Release the savepoint."""

    def rollback_to(self, name: str, error: Exception) -> None:
        """Roll back to the savepoint. Raises the error if the whole transaction is lost."""

    def commit(self, bumped: Collection[int]) -> None:
        """Commit, and notify other replicas of the scopes that changed."""


_SAVEPOINT = "request"


def run_batch(session: BatchTransaction, batch: Sequence[Job[Any]]) -> None:
    """Run all requests in one transaction and commit. Raises what ends the transaction; then nothing is written."""
    clock_ms = session.begin(batch)
    for job in batch:
        job.result, job.error, job.bumped, job.deltas = None, None, set(), {}
        transaction = Transaction(session.core, clock_ms, session.entry_ids, session.try_lock, session.is_followed)
        if len(batch) == 1:
            # A single request needs no savepoint: it can undo the whole transaction.
            job.result = job.work(transaction)
        else:
            _run_in_savepoint(session, transaction, job)
        if job.error is None:
            job.bumped, job.deltas = set(transaction.revisions_before), transaction.deltas
    session.commit(bumped_scopes(batch))


def _run_in_savepoint(session: BatchTransaction, transaction: Transaction, job: Job[Any]) -> None:
    session.savepoint(_SAVEPOINT)
    with CaughtError() as caught:
        job.result = job.work(transaction)
        session.release(_SAVEPOINT)
    if caught.error is not None:
        session.rollback_to(_SAVEPOINT, caught.error)
        job.error = caught.error
        session.release(_SAVEPOINT)


def bumped_scopes(batch: Iterable[Job[Any]]) -> set[int]:
    return set().union(*(job.bumped for job in batch))


def fail_jobs(batch: Iterable[Job[Any]], error: Exception) -> None:
    """Nothing of the batch was written: every job without an error of its own gets this one."""
    for job in batch:
        job.error = job.error or error
        job.bumped, job.deltas = set(), {}


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

"""Group commit: one batch of requests as one transaction, in the writer thread; the same for every database.

Every exception of a request is passed to its caller; those of the whole transaction are handled by the database's
writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct, field
from sqlalchemy import Connection
from turnwright_values.store import Durability

from turnwright_store.edge.thread import CaughtError
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

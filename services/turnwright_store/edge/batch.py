"""One batch of requests as one transaction, inside the writing thread.

Nothing is caught by name here: whatever a request raises belongs to its caller, so it is carried over to the event
loop as it is, and what the transaction as a whole raises is carried to every caller of the batch.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import sqlalchemy

from turnwright_store.ports import Durability, Query, Transaction, Work

T = TypeVar("T")

_SYNCHRONOUS: Final = {Durability.NORMAL: "PRAGMA synchronous = NORMAL", Durability.FULL: "PRAGMA synchronous = FULL"}


@dataclass(slots=True)
class Job(Generic[T]):
    """One request that waits for the writer; filled in by the thread, answered by the event loop."""

    work: Work[T]
    durability: Durability
    answer: asyncio.Future[T]
    result: T | None = None
    error: Exception | None = None
    raised: set[int] = field(default_factory=set)

    def reply(self) -> None:
        """Hand over what the thread left here; a caller that has gone away misses it."""
        if self.answer.done():
            return
        if self.error is not None:
            self.answer.set_exception(self.error)
        else:
            self.answer.set_result(self.result)  # type: ignore[arg-type] # None is a T where the work returns None


class _Kept:
    """Keeps the exception that leaves its block."""

    error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.error = error
        return True


class Writer:
    """Commits batches. Used by the writing thread only."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        """`clock_ms` gives the time of the writes, in milliseconds since 1970."""
        self.transactions = 0
        self.requests = 0
        self._clock_ms = clock_ms
        self._synchronous: Durability | None = None

    def commit(self, raw: sqlite3.Connection, core: sqlalchemy.Connection, batch: Sequence[Job[Any]]) -> None:
        """Run a batch. Never raises: each job then has its result or its error."""
        with _Kept() as whole:
            self._set_synchronous(raw, max(job.durability for job in batch))
            raw.execute("BEGIN IMMEDIATE")
            for job in batch:
                self._part(raw, core, job, alone=len(batch) == 1)
            raw.execute("COMMIT")
            self.transactions += 1
            self.requests += len(batch)
        if whole.error is not None:
            if raw.in_transaction:
                raw.execute("ROLLBACK")
            for job in batch:
                job.error = job.error or whole.error
                job.raised = set()

    def _set_synchronous(self, raw: sqlite3.Connection, wanted: Durability) -> None:
        if wanted is not self._synchronous:
            raw.execute(_SYNCHRONOUS[wanted])
            self._synchronous = wanted

    def _part(self, raw: sqlite3.Connection, core: sqlalchemy.Connection, job: Job[Any], *, alone: bool) -> None:
        """One request. Alone, it needs no savepoint: the transaction is its own to undo."""
        transaction = Transaction(core, self._clock_ms())
        if alone:
            job.result = job.work(transaction)
        else:
            raw.execute("SAVEPOINT request")
            with _Kept() as kept:
                job.result = job.work(transaction)
            if kept.error is not None:
                if not raw.in_transaction:
                    # The database gave up the whole transaction (disk full, I/O error): nobody's part is left.
                    raise kept.error
                job.error = kept.error
                raw.execute("ROLLBACK TO request")
            raw.execute("RELEASE request")
        job.raised = set() if job.error else set(transaction.raised)


def snapshot(raw: sqlite3.Connection, core: sqlalchemy.Connection, query: Query[T]) -> T:
    """The result of a query, all of whose statements see the same moment."""
    raw.execute("BEGIN")
    try:
        return query(core)
    finally:
        raw.execute("COMMIT")

"""One batch of requests as one transaction, inside the writing thread; the same on every database.

Nothing is caught by name here: whatever a request raises belongs to its caller, so it is carried over to the event
loop as it is, and what the transaction as a whole raises is for the database's own writer to deal with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct, field

from turnwright_store.edge.thread import CaughtError
from turnwright_store.ports import Connection, Durability, ScopeDelta, Transaction, Work

T = TypeVar("T")


class Job(Struct, Generic[T]):
    """One request that waits for the writer; filled in by the thread, answered by the event loop."""

    work: Work[T]
    durability: Durability
    locks: Collection[str]
    answer: asyncio.Future[T]
    inline: bool = False
    """Whether it takes so little that no thread is worth its while."""
    result: T | None = None
    error: Exception | None = None
    raised: set[int] = field(default_factory=set)
    deltas: Mapping[int, ScopeDelta] = field(default_factory=dict)
    """What followers of the scopes are told of it."""

    def reply(self) -> None:
        """Hand over what the thread left here; a caller that has gone away misses it."""
        if self.answer.done():
            return
        if self.error is not None:
            self.answer.set_exception(self.error)
        else:
            self.answer.set_result(self.result)  # type: ignore[arg-type] # None is a T where the work returns None


class BatchTransaction(Protocol):
    """The transaction of a writer, as its database spells it."""

    @property
    def is_followed(self) -> Callable[[int], bool]:
        """Whether somebody in this process is to be told what changes of a scope."""

    @property
    def core(self) -> Connection:
        """What the requests write through."""

    def begin(self, batch: Sequence[Job[Any]]) -> Callable[[], int]:
        """Begin, with what the batch locks; returns the clock of its writes, in milliseconds since 1970."""

    def entry_ids(self, count: int) -> Sequence[int]:
        """So many new numbers of entries; those of a request that is undone are lost."""

    def try_lock(self, name: str) -> bool:
        """Lock one more name, unless that would mean waiting; whether it is locked."""

    def mark(self, name: str) -> None:
        """Begin a request's part: what it does can be undone."""

    def keep(self, name: str) -> None:
        """End a part. Raises what its statements met that nobody has waited for yet."""

    def undo(self, name: str, error: Exception) -> None:
        """Undo a part that failed. Raises the error where the transaction as a whole went with it."""

    def commit(self, raised: Collection[int]) -> None:
        """Commit, and tell other replicas which scopes were raised."""


_PART = "request"


def run_batch(session: BatchTransaction, batch: Sequence[Job[Any]]) -> None:
    """Run all requests in one transaction and commit. Raises what ends the transaction; nothing is written then."""
    clock_ms = session.begin(batch)
    for job in batch:
        job.result, job.error, job.raised, job.deltas = None, None, set(), {}
        transaction = Transaction(
            session.core,
            clock_ms,
            entry_ids=session.entry_ids,
            try_lock=session.try_lock,
            is_followed=session.is_followed,
        )
        if len(batch) == 1:
            # Alone, a request needs no savepoint: the transaction is its own to undo.
            job.result = job.work(transaction)
        else:
            _part(session, transaction, job)
        if job.error is None:
            job.raised, job.deltas = transaction.all_raised(), transaction.deltas
    session.commit(raised_by(batch))


def _part(session: BatchTransaction, transaction: Transaction, job: Job[Any]) -> None:
    session.mark(_PART)
    with CaughtError() as kept:
        job.result = job.work(transaction)
        session.keep(_PART)
    if kept.error is not None:
        session.undo(_PART, kept.error)
        job.error = kept.error
        session.keep(_PART)


def raised_by(batch: Iterable[Job[Any]]) -> set[int]:
    return set().union(*(job.raised for job in batch))


def fail_all(batch: Iterable[Job[Any]], error: Exception) -> None:
    """Nothing of the batch was written: whoever has no error of its own hears this one."""
    for job in batch:
        job.error = job.error or error
        job.raised, job.deltas = set(), {}

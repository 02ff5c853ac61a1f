"""Commits batches on PostgreSQL: locks first, then the clock, then the requests, then one NOTIFY with the COMMIT.

Everything that a batch changes or depends on is locked by name, in the same order on every replica, before its first
statement. Each later statement therefore sees everything that an earlier holder of these locks has committed. This
needs READ COMMITTED: a snapshot for the whole transaction would be taken before the locks are held. Source:
architecture 3; docs/adr/0006.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final

import psycopg

from turnwright_store.edge.batch import Job, fail_jobs, run_batch
from turnwright_store.edge.postgres_link import PostgresLink
from turnwright_store.edge.postgres_pipe import PipelineResult, StatementPipeline
from turnwright_store.edge.sqlstates import RecoveryAction, commit_unknown, recovery_of, to_fault
from turnwright_store.edge.thread import CaughtError
from turnwright_store.ports import Connection

CHANNEL: Final = "turnwright_changes"
"""Notification channel for changed scopes."""

EVERYBODY: Final = "*"
"""Payload if the scopes do not fit into one notification."""

ENTRY_IDS_AT_ONCE: Final = 256
"""Entry ids to allocate at a time; unused ones are lost at shutdown."""

PAYLOAD_BYTES_MAX: Final = 7999
"""PostgreSQL's limit for a notification: less than 8000 bytes."""

_LOCK: Final = (
    "SELECT count(pg_advisory_xact_lock(key)), (extract(epoch FROM clock_timestamp()) * 1000)::bigint "
    "FROM unnest($1::bigint[]) AS name(key)"
)
"""An aggregate is computed after all its input, so the clock is read after the last lock."""

_SHORT_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = 50"
"""Milliseconds: long enough for concurrent commits to finish."""

_TRY_LOCK: Final = "SELECT pg_try_advisory_xact_lock($1::bigint)"
_ENTRY_IDS: Final = "SELECT nextval('entries_id_seq') FROM generate_series(1, $1::bigint)"
_NOTIFY: Final = "SELECT pg_notify($1::text, $2::text)"


def lock_key(name: str) -> int:
    return int.from_bytes(blake2b(f"turnwright:{name}".encode(), digest_size=8).digest(), "big", signed=True)


def lock_keys(names: Iterable[str]) -> list[int]:
    """The advisory lock keys of names, without duplicates, in the global lock order."""
    return sorted(set(map(lock_key, names)))


def payload(bumped: Collection[int]) -> str:
    """The notification for these scopes."""
    text = ",".join(map(str, sorted(bumped)))
    return text if len(text) <= PAYLOAD_BYTES_MAX else EVERYBODY


def _clock_of(locked: PipelineResult) -> int:
    ((_, now_ms),) = locked
    return int(now_ms)


class PostgresWriter:
    """Commits batches. Used by the writer thread only; is the session of its own transactions."""

    def __init__(self, link: PostgresLink, is_followed: Callable[[int], bool]) -> None:
        self.is_followed = is_followed
        self.transactions = 0
        self.requests = 0
        self._link = link
        self._entry_ids: deque[int] = deque()
        self._ids_from: StatementPipeline | None = None
        self._is_locked_out = False

    def write(self, batch: Sequence[Job[Any]]) -> None:
        """Run a batch. Never raises: each job then has its result or its error."""
        self._is_locked_out = False
        self._commit(batch)
        if self._is_locked_out:
            # Somebody holds one of the locks: requests for other locks must not suffer, and those that need it have
            # waited long enough.
            for job in batch:
                self._commit([job])
        for job in batch:
            if job.error is not None:
                job.error = to_fault(job.error, recovery_of(job.error, is_open=True))

    def _commit(self, batch: Sequence[Job[Any]]) -> None:
        with CaughtError() as whole:
            self._link.run_transaction(lambda: run_batch(self, batch))
            self.transactions += 1
            self.requests += len(batch)
        if whole.error is not None:
            fail_jobs(batch, whole.error)

    @property
    def core(self) -> Connection:
        return self._link.direct

    def begin(self, batch: Sequence[Job[Any]]) -> Callable[[], int]:
        """Begin, lock, then read the clock, so that a later lock holder reads a later time.

        The first query waits for the locks; a request without a query does not depend on them.
        """
        keys = lock_keys(name for job in batch for name in job.locks)
        self._link.pipe.send("BEGIN")
        if self._is_locked_out:
            self._link.pipe.send(_SHORT_LOCK_TIMEOUT)
        locked = self._link.pipe.send(_LOCK, [keys])
        if len(batch) > 1:
            # A failure here is no single request's fault. A single request waits for its locks with its first query.
            try:
                self._link.pipe.sync()
            except psycopg.errors.LockNotAvailable:
                self._is_locked_out = True
                raise
        return lambda: _clock_of(locked)

    def entry_ids(self, count: int) -> Sequence[int]:
        """Ids allocated in blocks; a rollback does not return them.

        A crashed server may have forgotten the allocation, so they are valid for one connection only.
        """
        pipe = self._link.pipe
        if pipe is not self._ids_from:
            self._entry_ids.clear()
            self._ids_from = pipe
        while len(self._entry_ids) < count:
            asked = max(ENTRY_IDS_AT_ONCE, count)
            self._entry_ids += [one for (one,) in pipe.query(_ENTRY_IDS, [asked])]
        return [self._entry_ids.popleft() for _ in range(count)]

    def try_lock(self, name: str) -> bool:
        """Try to take one more lock; waiting could deadlock with another batch."""
        ((is_locked,),) = self._link.pipe.query(_TRY_LOCK, [lock_key(name)])
        return bool(is_locked)

    def savepoint(self, name: str) -> None:
        self._link.pipe.send(f"SAVEPOINT {name}")

    def release(self, name: str) -> None:
        """Release the savepoint. Raises pending errors."""
        self._link.pipe.query(f"RELEASE {name}")

    def rollback_to(self, name: str, error: Exception) -> None:
        """Roll back to the savepoint, unless the error makes the whole batch run again."""
        if recovery_of(error, is_open=self._link.is_open) in (RecoveryAction.AGAIN, RecoveryAction.CONNECT):
            raise error
        self._link.pipe.drain_quietly()
        self._link.pipe.query(f"ROLLBACK TO {name}")

    def commit(self, bumped: Collection[int]) -> None:
        """Commit, with a notification of the changed scopes."""
        pipe = self._link.pipe
        if bumped:
            pipe.send(_NOTIFY, [CHANNEL, payload(bumped)])
        try:
            ended = pipe.query("COMMIT")
        except psycopg.Error as error:
            if self._link.is_open:
                raise
            raise commit_unknown(error) from error
        if ended.status != "COMMIT":
            # A request continued after one of its statements had failed; the server has rolled everything back.
            raise psycopg.InternalError("the transaction was not committed")

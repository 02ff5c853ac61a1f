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
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from turnwright_store.edge.batch import Job, fail_jobs, run_batch
from turnwright_store.edge.postgres_link import PostgresLink
from turnwright_store.edge.sqlstates import RecoveryAction, commit_unknown, recovery_of, to_fault
from turnwright_store.edge.thread import CaughtError

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
    "FROM unnest(%s::bigint[]) AS name(key)"
)
"""An aggregate is computed after all its input, so the clock is read after the last lock."""

_SHORT_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = 50"
"""Milliseconds: long enough for concurrent commits to finish."""

_TRY_LOCK: Final = "SELECT pg_try_advisory_xact_lock(%s::bigint)"
_ENTRY_IDS: Final = "SELECT nextval('entries_id_seq') FROM generate_series(1, %s::bigint)"
_NOTIFY: Final = "SELECT pg_notify(%s::text, %s::text)"


def lock_key(name: str) -> int:
    return int.from_bytes(blake2b(f"turnwright:{name}".encode(), digest_size=8).digest(), "big", signed=True)


def lock_keys(names: Iterable[str]) -> list[int]:
    """The advisory lock keys of names, without duplicates, in the global lock order."""
    return sorted(set(map(lock_key, names)))


def payload(bumped: Collection[int]) -> str:
    """The notification for these scopes."""
    text = ",".join(map(str, sorted(bumped)))
    return text if len(text) <= PAYLOAD_BYTES_MAX else EVERYBODY


class PostgresWriter:
    """Commits batches. Used by the writer thread only; is the session of its own transactions."""

    def __init__(self, link: PostgresLink, is_followed: Callable[[int], bool]) -> None:
        self.is_followed = is_followed
        self._link = link
        self._entry_ids: deque[int] = deque()
        self._ids_from: Connection | None = None
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
        if whole.error is not None:
            fail_jobs(batch, whole.error)

    @property
    def core(self) -> Connection:
        return self._link.core

    def begin(self, batch: Sequence[Job[Any]]) -> Callable[[], int]:
        """Begin, lock, then read the clock, so that a later lock holder reads a later time."""
        keys = lock_keys(name for job in batch for name in job.locks)
        self._link.send("BEGIN")
        if self._is_locked_out:
            self._link.send(_SHORT_LOCK_TIMEOUT)
        try:
            _, now_ms = self.core.exec_driver_sql(_LOCK, (keys,)).one()
        except DBAPIError as error:
            # A failure here is no single request's fault.
            self._is_locked_out = len(batch) > 1 and isinstance(error.orig, psycopg.errors.LockNotAvailable)
            raise
        return lambda: int(now_ms)

    def entry_ids(self, count: int) -> Sequence[int]:
        """Ids allocated in blocks; a rollback does not return them.

        A crashed server may have forgotten the allocation, so they are valid for one connection only.
        """
        if self.core is not self._ids_from:
            self._entry_ids.clear()
            self._ids_from = self.core
        while len(self._entry_ids) < count:
            asked = max(ENTRY_IDS_AT_ONCE, count)
            self._entry_ids += self.core.exec_driver_sql(_ENTRY_IDS, (asked,)).scalars()
        return [self._entry_ids.popleft() for _ in range(count)]

    def try_lock(self, name: str) -> bool:
        """Try to take one more lock; waiting could deadlock with another batch."""
        return bool(self.core.exec_driver_sql(_TRY_LOCK, (lock_key(name),)).scalar_one())

    def savepoint(self, name: str) -> None:
        self._link.send(f"SAVEPOINT {name}")

    def release(self, name: str) -> None:
        self.core.exec_driver_sql(f"RELEASE {name}")

    def rollback_to(self, name: str, error: Exception) -> None:
        """Roll back to the savepoint, unless the error makes the whole batch run again."""
        if recovery_of(error, is_open=self._link.is_open) in (RecoveryAction.AGAIN, RecoveryAction.CONNECT):
            raise error
        self._link.drain()
        self.core.exec_driver_sql(f"ROLLBACK TO {name}")

    def commit(self, bumped: Collection[int]) -> None:
        """Commit, with a notification of the changed scopes."""
        if bumped:
            self._link.send(_NOTIFY, CHANNEL, payload(bumped))
        try:
            self.core.exec_driver_sql("COMMIT")
        except DBAPIError as error:
            # The server may say that it ends the connection before that has closed.
            if recovery_of(error, is_open=self._link.is_open) is not RecoveryAction.CONNECT:
                raise
            raise commit_unknown(error) from error

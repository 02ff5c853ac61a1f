"""A connection to the database file, and the writer on it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, StaticPool, create_engine
from turnwright_values.store import Durability

from turnwright_store.edge.batch import Job, fail_jobs, run_batch
from turnwright_store.edge.sqlite_codes import is_busy
from turnwright_store.edge.thread import CaughtError
from turnwright_store.ports import Query

T = TypeVar("T")

STATEMENTS_CACHED = 512
"""Prepared statements that the driver keeps; ours are few, but IN lists of each length count."""

BUSY_TIMEOUT_MS: Final = 5000
"""How long a statement waits for another process with the file open (a backup, a shell)."""

READER_PRAGMAS: Final = (
    "query_only = ON",
    f"busy_timeout = {BUSY_TIMEOUT_MS}",
    "cache_size = -16384",
    "temp_store = MEMORY",
)

_CHECKPOINT_PAGES: Final = 2000
"""Pages in the write-ahead log from which a commit in the thread brings them into the file."""

_HERE_MAX: Final = 256
"""Number of requests written in the event loop before one in the thread, which checkpoints the write-ahead log."""

_MODES: Final[dict[object, tuple[str, ...]]] = {
    "here": ("synchronous = NORMAL", "busy_timeout = 0", "wal_autocheckpoint = 0"),
    **{
        durability: (
            f"synchronous = {durability.name}",
            f"busy_timeout = {BUSY_TIMEOUT_MS}",
            f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
        )
        for durability in (Durability.NORMAL, Durability.FULL)
    },
}
"""How the writer's connection is set up: in the event loop it waits for nothing, neither a lock nor a disk."""


class SqliteLink:
    """One sqlite3 connection, and the SQLAlchemy connection on it."""

    raw: sqlite3.Connection
    core: Connection

    def __init__(self, path: Path, pragmas: tuple[str, ...]) -> None:
        """Prepare; `open` opens the file. `pragmas` run once, at the opening."""
        self.path = path
        self._pragmas = pragmas

    def open(self) -> None:
        """Open the file."""
        self.raw = sqlite3.connect(
            self.path,
            isolation_level=None,
            cached_statements=STATEMENTS_CACHED,
            # The event loop uses it too, while the thread has nothing to do.
            check_same_thread=False,
        )
        try:
            for pragma in self._pragmas:
                self.raw.execute(f"PRAGMA {pragma}").close()
            engine = create_engine(
                "sqlite://",
                creator=lambda: self.raw,
                poolclass=StaticPool,
                isolation_level="AUTOCOMMIT",
                pool_reset_on_return=None,
                hide_parameters=True,
            )
            self.core = engine.connect()
        except BaseException:
            # A file that SQLite cannot read is opened all the same.
            self.raw.close()
            raise

    def close(self) -> None:
        self.core.close()
        self.core.engine.dispose()
        self.raw.close()

    def snapshot(self, query: Query[T]) -> T:
        """Run a query whose statements all see one snapshot."""
        self.core.exec_driver_sql("BEGIN")
        try:
            return query(self.core)
        finally:
            self.core.exec_driver_sql("COMMIT")


class SqliteWriter:
    """Commits batches. Used by one thread at a time; is the session of its own transactions."""

    def __init__(self, link: SqliteLink, clock_ms: Callable[[], int], is_followed: Callable[[int], bool]) -> None:
        """`clock_ms` gives the time of the writes, in milliseconds since 1970."""
        self.is_followed = is_followed
        self._link = link
        self._clock_ms = clock_ms
        self._mode: object = None
        self._here = 0
        self._log_file = -1
        self._last_entry = -1

    def write(self, batch: Sequence[Job[Any]]) -> None:
        """Run a batch in the thread. Never raises: each job then has its result or its error."""
        self._here = 0
        self._run(batch, max(job.durability for job in batch))

    def write_inline(self, batch: Sequence[Job[Any]]) -> bool:
        """Run a batch in the event loop if that needs no waiting; returns whether it did.

        With FULL durability it is committed but not yet on disk: see `sync`.
        """
        if self._here >= _HERE_MAX:
            return False
        error = self._run(batch, "here")
        if error and is_busy(error):
            return False
        self._here += len(batch)
        return True

    def sync(self, batch: Sequence[Job[Any]]) -> None:
        """Sync the commits of the event loop to disk, as a commit with synchronous = FULL does."""
        with CaughtError() as failed:
            if self._log_file < 0:
                self._log_file = os.open(f"{self._link.path}-wal", os.O_RDONLY)
            os.fdatasync(self._log_file)
        if failed.error is not None:
            fail_jobs(batch, failed.error)

    def close(self) -> None:
        if self._log_file >= 0:
            os.close(self._log_file)

    def _run(self, batch: Sequence[Job[Any]], mode: object) -> Exception | None:
        """Run a batch; what ended it as a whole."""
        with CaughtError() as whole:
            self._set_up(mode)
            run_batch(self, batch)
        if whole.error is not None:
            if self._link.raw.in_transaction:
                self._link.core.exec_driver_sql("ROLLBACK")
            fail_jobs(batch, whole.error)
        return whole.error

    def _set_up(self, mode: object) -> None:
        if mode is not self._mode:
            for pragma in _MODES[mode]:
                self._link.raw.execute(f"PRAGMA {pragma}").close()
            self._mode = mode

    @property
    def core(self) -> Connection:
        return self._link.core

    def begin(self, batch: Sequence[Job[Any]]) -> Callable[[], int]:  # noqa: ARG002 - one writer needs no locks
        """Begin as the only writer there is."""
        self._link.core.exec_driver_sql("BEGIN IMMEDIATE")
        return self._clock_ms

    def entry_ids(self, count: int) -> Sequence[int]:
        """The next numbers: this process is the only one that allocates any."""
        if self._last_entry < 0:
            self._last_entry = int(self.core.exec_driver_sql("SELECT coalesce(max(id), 0) FROM entries").scalar_one())
        self._last_entry += count
        return range(self._last_entry - count + 1, self._last_entry + 1)

    def try_lock(self, name: str) -> bool:  # noqa: ARG002 - one writer has every name
        return True

    def savepoint(self, name: str) -> None:
        self.core.exec_driver_sql(f"SAVEPOINT {name}")

    def release(self, name: str) -> None:
        self.core.exec_driver_sql(f"RELEASE {name}")

    def rollback_to(self, name: str, error: Exception) -> None:
        if not self._link.raw.in_transaction:
            # SQLite has rolled back the whole transaction (disk full, I/O error).
            raise error
        self.core.exec_driver_sql(f"ROLLBACK TO {name}")

    def commit(self, bumped: Collection[int]) -> None:  # noqa: ARG002 - there is no other replica to tell
        self._link.core.exec_driver_sql("COMMIT")

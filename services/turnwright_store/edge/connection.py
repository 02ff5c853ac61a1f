"""A connection to the database file, and the writer on it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from threading import Thread
from typing import Any, Final
from urllib.parse import quote
from weakref import WeakSet

import aiosqlite
from sqlalchemy import URL, Connection, StaticPool, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from turnwright_values.store import Durability

from turnwright_store.edge.batch import Job, fail_jobs, run_batch
from turnwright_store.edge.readers import Readers
from turnwright_store.edge.thread import CaughtError

STATEMENTS_CACHED = 512
"""Prepared statements that the driver keeps; ours are few, but IN lists of each length count."""

BUSY_TIMEOUT_MS: Final = 5000
"""How long a statement waits for another process with the file open (a backup, a shell)."""

_READER_PRAGMAS: Final = (
    "query_only = ON",
    f"busy_timeout = {BUSY_TIMEOUT_MS}",
    "cache_size = -16384",
    "temp_store = MEMORY",
)

CHECKPOINT_PAGES: Final = 2000
"""Pages in the write-ahead log from which a commit brings them into the file."""


class SqliteReaders(Readers):
    """The readers of a file, which must be there. Each connection has a thread of aiosqlite's."""

    def __init__(self, path: Path, *pragmas: str, readers: int, queue_max: int) -> None:
        """`pragmas` run once on each connection, beside those of all."""
        # SQLite would create a file that is gone.
        url = URL.create("sqlite+aiosqlite", database=f"file:{quote(str(path))}", query={"mode": "rw", "uri": "true"})
        settings = {"isolation_level": None, "cached_statements": STATEMENTS_CACHED, "async_creator_fn": self._connect}
        super().__init__(url, "BEGIN", readers=readers, queue_max=queue_max, connect_args=settings)
        self._threads: WeakSet[Thread] = WeakSet()

        def set_up(raw: DBAPIConnection, _record: object) -> None:
            cursor = raw.cursor()
            for pragma in (*_READER_PRAGMAS, *pragmas):
                cursor.execute(f"PRAGMA {pragma}")
            cursor.close()

        event.listen(self.events, "connect", set_up)

    def _connect(self, *args: Any, **kwargs: Any) -> Any:
        connection: Any = aiosqlite.connect(*args, **kwargs)
        # Until aiosqlite 0.22, a connection is its thread.
        thread: Thread = getattr(connection, "_thread", connection)
        thread.daemon = True
        self._threads.add(thread)
        return connection

    async def close(self) -> None:
        await super().close()
        # A connection that failed to open, or whose caller left, is stopped, but nobody waits for its thread, which
        # then calls a loop that may be closed.
        for thread in list(self._threads):
            await asyncio.to_thread(thread.join)


class SqliteLink:
    """One sqlite3 connection, and the SQLAlchemy connection on it."""

    raw: sqlite3.Connection
    core: Connection

    def __init__(self, path: Path, pragmas: tuple[str, ...]) -> None:
        """Prepare; `open` opens the file. `pragmas` run once, at the opening."""
        self.path = path
        self._pragmas = pragmas

    def open(self) -> None:
        self.raw = sqlite3.connect(self.path, isolation_level=None, cached_statements=STATEMENTS_CACHED)
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


class SqliteWriter:
    """Commits batches. Used by the writer thread only; is the session of its own transactions."""

    def __init__(self, link: SqliteLink, clock_ms: Callable[[], int], is_followed: Callable[[int], bool]) -> None:
        """`clock_ms` gives the time of the writes, in milliseconds since 1970."""
        self.is_followed = is_followed
        self._link = link
        self._clock_ms = clock_ms
        self._durability: Durability | None = None
        self._last_entry = -1

    def write(self, batch: Sequence[Job[Any]]) -> None:
        """Run a batch. Never raises: each job then has its result or its error."""
        with CaughtError() as whole:
            self._sync_as(max(job.durability for job in batch))
            run_batch(self, batch)
        if whole.error is not None:
            if self._link.raw.in_transaction:
                self._link.core.exec_driver_sql("ROLLBACK")
            fail_jobs(batch, whole.error)

    def _sync_as(self, durability: Durability) -> None:
        if durability is not self._durability:
            self._link.raw.execute(f"PRAGMA synchronous = {durability.name}").close()
            self._durability = durability

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

"""A connection to the database file, and the writer on it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import sqlalchemy
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.pool import StaticPool

from turnwright_store.edge.batch import Job, fail_all, run_batch
from turnwright_store.edge.statements import Statements, direct
from turnwright_store.edge.thread import Kept
from turnwright_store.ports import Durability, Query, lock_always

T = TypeVar("T")

STATEMENTS_CACHED = 512
"""Prepared statements that the driver keeps; ours are few, but IN lists of each length count."""

_STATEMENTS: Final = Statements(SQLiteDialect_pysqlite())

_SYNCHRONOUS: Final = {Durability.NORMAL: "PRAGMA synchronous = NORMAL", Durability.FULL: "PRAGMA synchronous = FULL"}


class CountingConnection(sqlite3.Connection):
    """Counts the statements that SQLAlchemy sends: each takes a cursor. Those that end transactions take none."""

    statements = 0

    def cursor(self, *args: Any, **more: Any) -> Any:
        """A cursor for one statement."""
        self.statements += 1
        return super().cursor(*args, **more)


class SqliteLink:
    """One sqlite3 connection, and the SQLAlchemy connection on it."""

    raw: CountingConnection
    core: sqlalchemy.Connection
    direct: sqlalchemy.Connection
    """The same for use cases: see edge.statements."""

    def __init__(self, path: Path, pragmas: tuple[str, ...]) -> None:
        """Prepare; `open` opens the file. `pragmas` run once, at the opening."""
        self._path = path
        self._pragmas = pragmas

    def open(self) -> None:
        """Open the file, and let SQLAlchemy look at it, so that the first request need not wait for that."""
        self.raw = sqlite3.connect(
            self._path, isolation_level=None, cached_statements=STATEMENTS_CACHED, factory=CountingConnection
        )
        for pragma in self._pragmas:
            self.raw.execute(f"PRAGMA {pragma}").close()
        engine = sqlalchemy.create_engine(
            "sqlite://",
            creator=lambda: self.raw,
            poolclass=StaticPool,
            isolation_level="AUTOCOMMIT",
            pool_reset_on_return=None,
        )
        self.core = engine.connect()
        self.direct = direct(self.core, _STATEMENTS, self.raw.cursor)

    def close(self) -> None:
        """Close both faces."""
        engine = self.core.engine
        self.core.close()
        engine.dispose()
        self.raw.close()

    @property
    def statements(self) -> int:
        """How many statements SQLAlchemy has sent."""
        return self.raw.statements if hasattr(self, "raw") else 0

    def snapshot(self, query: Query[T]) -> T:
        """The result of a query, all of whose statements see the same moment."""
        self.raw.execute("BEGIN")
        try:
            return query(self.direct)
        finally:
            self.raw.execute("COMMIT")


class SqliteWriter:
    """Commits batches. Used by the writing thread only; is the session of its own transactions."""

    def __init__(self, link: SqliteLink, clock_ms: Callable[[], int]) -> None:
        """`clock_ms` gives the time of the writes, in milliseconds since 1970."""
        self.transactions = 0
        self.requests = 0
        self._link = link
        self._clock_ms = clock_ms
        self._synchronous: Durability | None = None

    def write(self, batch: Sequence[Job[Any]]) -> None:
        """Run a batch. Never raises: each job then has its result or its error."""
        with Kept() as whole:
            run_batch(self, batch)
            self.transactions += 1
            self.requests += len(batch)
        if whole.error is not None:
            if self._link.raw.in_transaction:
                self._link.raw.execute("ROLLBACK")
            fail_all(batch, whole.error)

    @property
    def core(self) -> sqlalchemy.Connection:
        """What the requests write through."""
        return self._link.direct

    def begin(self, batch: Sequence[Job[Any]]) -> Callable[[], int]:
        """Begin as the only writer there is, with the durability that the strongest of the batch needs."""
        wanted = max(job.durability for job in batch)
        if wanted is not self._synchronous:
            self._link.raw.execute(_SYNCHRONOUS[wanted])
            self._synchronous = wanted
        self._link.raw.execute("BEGIN IMMEDIATE")
        return self._clock_ms

    def try_lock(self, name: str) -> bool:
        """One writer has every name."""
        return lock_always(name)

    def mark(self, name: str) -> None:
        """Begin a request's part."""
        self._link.raw.execute(f"SAVEPOINT {name}")

    def keep(self, name: str) -> None:
        """End a part."""
        self._link.raw.execute(f"RELEASE {name}")

    def undo(self, name: str, error: Exception) -> None:
        """Undo a part."""
        if not self._link.raw.in_transaction:
            # The database gave up the whole transaction (disk full, I/O error): nobody's part is left.
            raise error
        self._link.raw.execute(f"ROLLBACK TO {name}")

    def commit(self, raised: Collection[int]) -> None:  # noqa: ARG002 - there is no other replica to tell
        """Commit."""
        self._link.raw.execute("COMMIT")

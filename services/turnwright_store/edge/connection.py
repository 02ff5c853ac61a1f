"""A connection that lives in a thread of its own and takes whole functions.

aiosqlite gives the thread and the queue to it, but pays one hop for each statement. Here a function runs in that
thread with a synchronous SQLAlchemy connection on the same sqlite3 connection: one hop, however many statements.
Transactions are begun and ended on the sqlite3 connection, which is in autocommit mode; SQLAlchemy's own
bookkeeping of transactions never reaches the driver. Source: docs/adr/0003.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
import sqlalchemy
from sqlalchemy.pool import StaticPool

T = TypeVar("T")

STATEMENTS_CACHED = 512
"""Prepared statements that the driver keeps; ours are few, but IN lists of each length count."""


class CountingConnection(sqlite3.Connection):
    """Counts the statements that SQLAlchemy sends: each takes a cursor. Those that end transactions take none."""

    statements = 0

    def cursor(self, *args: Any, **more: Any) -> Any:
        """A cursor for one statement."""
        self.statements += 1
        return super().cursor(*args, **more)


class ThreadConnection(aiosqlite.Connection):
    """One sqlite3 connection, its thread, and the SQLAlchemy connection on it."""

    def __init__(self, path: Path, pragmas: tuple[str, ...]) -> None:
        """Prepare; `open` opens the file. `pragmas` run once, at the opening."""
        super().__init__(lambda: _open(path, pragmas), iter_chunk_size=64)
        # Should the process's main fail before it closes us, the thread must not keep the process alive.
        self._thread.daemon = True
        self._core: sqlalchemy.Connection | None = None

    async def open(self) -> None:
        """Open the file, and let SQLAlchemy look at it, so that the first request need not wait for that."""
        await self
        await self.run(lambda _raw, _core: None)

    async def run(self, function: Callable[[sqlite3.Connection, sqlalchemy.Connection], T]) -> T:
        """The function's result, called in the thread with both faces of the connection."""
        execute: Any = self._execute  # untyped
        result: T = await execute(self._call, function)
        return result

    async def shut(self) -> None:
        """Close both faces and end the thread."""
        execute: Any = self._execute
        await execute(self._close_core)
        await self.close()

    @property
    def statements(self) -> int:
        """How many statements it was sent, those that begin and end transactions left out."""
        return getattr(self._connection, "statements", 0)

    def _call(self, function: Callable[[sqlite3.Connection, sqlalchemy.Connection], T]) -> T:
        if self._core is None:
            self._core = _core(self._conn)
        return function(self._conn, self._core)

    def _close_core(self) -> None:
        if self._core is not None:
            engine = self._core.engine
            self._core.close()
            self._core = None
            engine.dispose()


def _open(path: Path, pragmas: tuple[str, ...]) -> sqlite3.Connection:
    raw = sqlite3.connect(path, isolation_level=None, cached_statements=STATEMENTS_CACHED, factory=CountingConnection)
    for pragma in pragmas:
        raw.execute(f"PRAGMA {pragma}").close()
    return raw


def _core(raw: sqlite3.Connection) -> sqlalchemy.Connection:
    engine = sqlalchemy.create_engine(
        "sqlite://", creator=lambda: raw, poolclass=StaticPool, isolation_level="AUTOCOMMIT", pool_reset_on_return=None
    )
    return engine.connect()

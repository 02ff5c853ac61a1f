"""SQLite for a process that only reads: one connection, no lock.

Another process may write to the file meanwhile: each query sees one moment.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy.exc import DBAPIError
from turnwright_values.store import Durability

from turnwright_core.errors import Reason, fault
from turnwright_store.edge.connection import SqliteReaders
from turnwright_store.edge.schema import is_behind
from turnwright_store.edge.sqlite_codes import to_fault, unusable_error
from turnwright_store.edge.wakeups import SubscribableDatabase
from turnwright_store.ports import SQLITE, Query, Work

T = TypeVar("T")

_QUEUE_MAX: Final = 4096
"""Queries that wait for the connection before more are refused."""


class ReadOnlyDatabase(SubscribableDatabase):
    """A database file that is not written to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = Path(os.path.realpath(path))

    async def start(self) -> None:
        """Nothing: it is open."""

    async def open(self) -> bool:
        """Open the file; False if there is none, or one whose schema is to be migrated first.

        Raises SchemaTooNewError, SchemaForeignError, SchemaUnreleasedError, DatabaseUnusableError.
        """
        self._readers = SqliteReaders(self._path, readers=1, queue_max=_QUEUE_MAX)
        try:
            return bool(self._path.stat().st_size) and not await self._readers.run(
                lambda connection: is_behind(connection.connection, SQLITE)
            )
        except FileNotFoundError:
            return False
        except (sqlite3.Error, DBAPIError) as error:
            raise unusable_error(self._path, error) from error

    async def close(self) -> None:
        await self._readers.close()

    async def write(self, work: Work[T], durability: Durability, locks: Collection[str]) -> T:
        """Raises DATABASE_UNAVAILABLE."""
        del work, durability, locks
        raise fault(Reason.DATABASE_UNAVAILABLE, "The database was opened for reading only.")

    async def read(self, query: Query[T]) -> T:
        try:
            return await self._readers.run(query)
        except (sqlite3.Error, DBAPIError) as error:
            raise to_fault(error, self._path) from error.__cause__

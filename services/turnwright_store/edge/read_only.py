"""SQLite for a process that only reads: one connection, no lock, no thread.

Another process may write to the file meanwhile: each query sees one moment.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import TypeVar

from sqlalchemy.exc import DBAPIError
from turnwright_values.store import Durability

from turnwright_core.errors import Reason, fault
from turnwright_store.edge.connection import READER_PRAGMAS, SqliteLink
from turnwright_store.edge.schema import is_behind
from turnwright_store.edge.sqlite_codes import to_fault, unusable_error
from turnwright_store.edge.wakeups import SubscribableDatabase
from turnwright_store.ports import SQLITE, Query, Work

T = TypeVar("T")


class ReadOnlyDatabase(SubscribableDatabase):
    """A database file that is not written to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = Path(os.path.realpath(path))
        self._link = SqliteLink(self._path, READER_PRAGMAS)
        self._is_open = False

    async def start(self) -> None:
        """Nothing: it is open."""

    def open(self) -> bool:
        """Open the file; False if there is none, or one whose schema is to be migrated first.

        Raises SchemaTooNewError, SchemaForeignError, SchemaUnreleasedError, DatabaseUnusableError.
        """
        try:
            if not self._path.stat().st_size:
                return False
            self._link.open()
            self._is_open = True
            return not is_behind(self._link.raw, SQLITE)
        except FileNotFoundError:
            return False
        except (sqlite3.Error, DBAPIError) as error:
            raise unusable_error(self._path, error) from error

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._link.close()

    async def write(self, work: Work[T], durability: Durability, locks: Collection[str], *, inline: bool = False) -> T:
        """Raises DATABASE_UNAVAILABLE."""
        del work, durability, locks, inline
        raise fault(Reason.DATABASE_UNAVAILABLE, "The database was opened for reading only.")

    async def read(self, query: Query[T], *, inline: bool = False) -> T:
        del inline
        try:
            return self._link.snapshot(query)
        except (sqlite3.Error, DBAPIError) as error:
            raise to_fault(error, self._path) from error.__cause__

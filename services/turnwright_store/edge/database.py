"""SQLite as the store's database: one writer with group commit, some readers, wake-ups after each commit.

Theory of operation. Group commit: the writer takes all waiting requests, up to a limit, as one batch: one BEGIN
IMMEDIATE, one savepoint for each request, one COMMIT. A failed request is rolled back to its savepoint; the others are
answered after the commit. `synchronous` is set between transactions to the strongest durability in the batch.
Source: architecture 3, 12.2, 12.3; docs/adr/0003.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy.exc import DBAPIError
from turnwright_values.store import Durability

from turnwright_core.errors import Reason, fault
from turnwright_kit.logs import get_logger
from turnwright_kit.threads import DaemonThreadPool
from turnwright_store.edge.batch import WriteQueue
from turnwright_store.edge.connection import BUSY_TIMEOUT_MS, CHECKPOINT_PAGES, SqliteLink, SqliteReaders, SqliteWriter
from turnwright_store.edge.lock import FileLock
from turnwright_store.edge.schema import is_behind, upgrade_to_head
from turnwright_store.edge.sqlite_codes import (
    driver_error,
    is_corruption,
    refuse_orphaned_wal,
    to_fault,
    unusable_error,
)
from turnwright_store.edge.thread import ThreadConnection
from turnwright_store.edge.wakeups import SubscribableDatabase
from turnwright_store.ports import SQLITE, Query, Work

READ_BYTES_MAX: Final = 1024 * 1024 * 1024
"""A larger file is not checked as a whole while its store runs."""

_STEPS: Final = 10_000
"""Steps of SQLite's virtual machine between checks whether to go on."""

_log = get_logger("store.database")


class FileHealth:
    """The health of one database file: not deleted, replaced or corrupted.

    SQLite does not notice that its file was deleted or replaced: it writes on to the old inode, which is gone with the
    process. And it finds corruption only when it reads a page. So the inodes of the file and its log are compared after
    each commit, before it is acknowledged; the quick check reads the first pages through a new connection with an empty
    cache; the integrity check reads everything once a day. After damage was found, the store must be restarted.

    Only SQLite may open the file: closing another descriptor of it would release SQLite's locks.
    Source: SQLite, "How To Corrupt An SQLite Database File"; docs/store.md.
    """

    def __init__(self, path: Path) -> None:
        self._file = path
        self._opened: dict[str, os.stat_result] = {}
        self._damage = ""
        self._change = ""
        self._is_closed = threading.Event()

    def remember_files(self) -> None:
        files = (str(self._file), f"{self._file}-wal")
        self._opened = {path: os.stat(path) for path in files if os.path.exists(path)}  # noqa: PTH110, PTH116 - as below

    def close(self) -> None:
        self._is_closed.set()

    def note_error(self, error: BaseException) -> None:
        """Note an error of SQLite, if it means damage."""
        if is_corruption(error) and not self._is_closed.is_set():
            self._note_damage(str(driver_error(error)))

    def raise_if_damaged(self) -> None:
        """Raise DATABASE_UNAVAILABLE if a problem is known."""
        if self._change:
            # Somebody may have restored it.
            self._change = self._changed()
        if problem := self._damage or self._change:
            message = f"The database file {self._file} {problem}. Stop the store, restore a backup, and start it again."
            raise fault(Reason.DATABASE_UNAVAILABLE, message)

    def check_files(self) -> None:
        """Compare the files with those that were opened. Raises as `raise_if_damaged` does."""
        change = self._changed()
        if change and change != self._change:
            _log.error("database_file_changed", path=str(self._file), detail=change)
        self._change = change
        self.raise_if_damaged()

    def quick_check(self) -> None:
        """Read the first pages from disk. Raises as `raise_if_damaged` does."""
        self.check_files()
        if self._read("SELECT count(*) FROM sqlite_master") == 0:
            self._note_damage("it holds no tables")
        self.raise_if_damaged()

    def integrity_check(self) -> None:
        """Check the structure of every page, unless the file is too large. Raises as `raise_if_damaged` does."""
        self.check_files()
        if self._file.stat().st_size <= READ_BYTES_MAX:
            found = self._read("PRAGMA quick_check(1)")
            if isinstance(found, str) and found != "ok":
                self._note_damage(found.splitlines()[-1])
        self.raise_if_damaged()

    def _read(self, statement: str) -> object:
        try:
            with closing(sqlite3.connect(f"{self._file.as_uri()}?mode=ro", uri=True)) as connection:
                connection.set_progress_handler(self._is_closed.is_set, _STEPS)
                return connection.execute(statement).fetchone()[0]
        except sqlite3.Error as error:
            # Any other error, such as a full disk, is reported to the requests that hit it.
            self.note_error(error)
            return None

    def _note_damage(self, detail: str) -> None:
        if not self._damage:
            self._damage = f"is damaged ({detail})"
            _log.error("database_damaged", path=str(self._file), detail=detail)

    def _changed(self) -> str:
        """What happened to the files at these paths since they were opened; empty if they are the same."""
        for path, before in self._opened.items():
            try:
                now = os.stat(path)  # noqa: PTH116 - after each commit
            except FileNotFoundError:
                return "has lost its log" if path.endswith("-wal") else "was deleted"
            except OSError as error:
                return f"cannot be looked at ({error.strerror})"
            if (now.st_dev, now.st_ino) != (before.st_dev, before.st_ino):
                return "has got another log" if path.endswith("-wal") else "was replaced"
            # It never shrinks while a store runs.
            if not path.endswith("-wal") and now.st_size < before.st_size:
                return "was cut short"
        return ""


T = TypeVar("T")

_PAGE_BYTES: Final = 2048
"""Size of a page of a new file. With 4 KiB, SQLite's default, small files are a tenth larger."""

_WRITER_PRAGMAS: Final = (
    # Before anything is written.
    f"page_size = {_PAGE_BYTES}",
    "journal_mode = WAL",
    "foreign_keys = ON",
    f"busy_timeout = {BUSY_TIMEOUT_MS}",
    "cache_size = -32768",
    "temp_store = MEMORY",
    f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
)


class SqliteDatabase(SubscribableDatabase):
    """The database file of one store. Source: docs/adr/0003."""

    def __init__(
        self,
        path: Path,
        clock_ms: Callable[[], int],
        *,
        queue_max: int,
        batch_max: int,
        readers: int,
        mmap_mb: int = 0,
    ) -> None:
        """Prepare. `queue_max` bounds the requests that wait for the writer, and those that wait for a reader.

        `mmap_mb`: MiB of the file that each connection maps into memory.
        """
        super().__init__()
        # Resolve symbolic links: the lock and the write-ahead log are next to the file itself.
        self._path = path = Path(os.path.realpath(path))
        mapped = f"mmap_size = {mmap_mb * 1024 * 1024}"
        self._writing = ThreadConnection(SqliteLink(path, (*_WRITER_PRAGMAS, mapped)))
        self._readers = SqliteReaders(path, mapped, readers=readers, queue_max=queue_max)
        self._writer = SqliteWriter(self._writing.link, clock_ms, self._wakeups.is_followed)
        self._writes = WriteQueue(
            self._writing.post, self._writer.write, self._wakeups, queue_max=queue_max, batch_max=batch_max
        )
        self._resources = contextlib.AsyncExitStack()
        self._health = FileHealth(path)
        self._checks = DaemonThreadPool("store-check", 2)

    async def start(self) -> None:
        """Take the file, bring its schema to head, and begin to serve.

        Raises DatabaseInUseError, SchemaTooNewError, SchemaForeignError, DatabaseUnusableError.
        """
        try:
            await self._start()
        except Exception as error:
            if isinstance(driver_error(error), sqlite3.Error):
                raise unusable_error(self._path, error) from error
            raise

    async def _start(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(FileLock(self._path).release)
            refuse_orphaned_wal(self._path)
            # The write-ahead log and shared memory get the mode of the file.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            await self._writing.open()
            stack.push_async_callback(self._writing.close)
            await self._writing.run(_upgrade)
            stack.push_async_callback(self._readers.close)
            self._health.remember_files()
            self._resources = stack.pop_all()

    async def close(self) -> None:
        self._health.close()
        await self._writes.close()
        await self._resources.aclose()

    async def quick_check(self) -> None:
        await self._checks.run(self._health.quick_check)

    async def integrity_check(self) -> None:
        await self._checks.run(self._health.integrity_check)

    async def write(self, work: Work[T], durability: Durability, locks: Collection[str]) -> T:
        """Run a function in a transaction and return its result after the commit.

        Raises QUEUE_FULL, DRAINING, DATABASE_UNAVAILABLE.
        """
        self._health.raise_if_damaged()
        try:
            result = await self._writes.put(work, durability, locks)
        except (sqlite3.Error, DBAPIError) as error:
            raise self._translated(error) from error.__cause__
        # What is in a file that has lost its name is not kept.
        self._health.check_files()
        return result

    async def read(self, query: Query[T]) -> T:
        self._health.raise_if_damaged()
        try:
            return await self._readers.run(query)
        except (sqlite3.Error, DBAPIError) as error:
            raise self._translated(error) from error.__cause__

    def _translated(self, error: Exception) -> Exception:
        """The error for callers. A lost or damaged file is not used any more."""
        self._health.note_error(error)
        self._health.raise_if_damaged()
        return to_fault(error, self._path)


def _upgrade(link: SqliteLink) -> None:
    if is_behind(link.raw, SQLITE):
        upgrade_to_head(link.raw, link.core)

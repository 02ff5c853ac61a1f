"""SQLite as the store's database: one writer with group commit, some readers, wake-ups after each commit.

Theory of operation. Group commit: the writer takes all waiting requests, up to a limit, as one batch: one BEGIN
IMMEDIATE, one savepoint for each request, one COMMIT. A failed request is rolled back to its savepoint; the others are
answered after the commit. `synchronous` is set between transactions to the strongest durability in the batch.

A hop to a thread costs more than the statements of a small request. So these are run in the event loop itself, on the
same connections, while their threads are idle. Whatever may block is left to the thread: a locked file, checkpoints of
the write-ahead log, and syncs to disk.
Source: architecture 3, 12.2, 12.3; docs/adr/0003.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy.exc import DBAPIError
from turnwright_values.store import Durability

from turnwright_kit.threads import DaemonThreadPool
from turnwright_store.edge.batch import Job
from turnwright_store.edge.connection import BUSY_TIMEOUT_MS, READER_PRAGMAS, SqliteLink, SqliteWriter
from turnwright_store.edge.file_health import FileHealth
from turnwright_store.edge.lock import FileLock
from turnwright_store.edge.queues import ReadQueue, WriteQueue
from turnwright_store.edge.schema import is_behind, upgrade_to_head
from turnwright_store.edge.sqlite_codes import driver_error, refuse_orphaned_wal, to_fault, unusable_error
from turnwright_store.edge.thread import ThreadConnection
from turnwright_store.edge.wakeups import SubscribableDatabase
from turnwright_store.ports import SQLITE, Query, Work

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
        self._writing = ThreadConnection(SqliteLink(path, (*_WRITER_PRAGMAS, mapped)), "store-writer")
        self._reading = [
            ThreadConnection(SqliteLink(path, (*READER_PRAGMAS, mapped)), "store-reader") for _ in range(readers)
        ]
        self._writer = SqliteWriter(self._writing.link, clock_ms, self._wakeups.is_followed)
        self._writes = WriteQueue(self._post, self._wakeups, queue_max=queue_max, batch_max=batch_max)
        self._reads: ReadQueue[SqliteLink] = ReadQueue(queue_max)
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
            stack.callback(self._writer.close)
            refuse_orphaned_wal(self._path)
            # The write-ahead log and shared memory get the mode of the file.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            await self._open(stack, self._writing)
            await self._writing.run(_upgrade)
            for reader in self._reading:
                await self._open(stack, reader)
            self._health.remember_files()
            self._resources = stack.pop_all()
        self._reads.start(self._reading)

    async def _open(self, stack: contextlib.AsyncExitStack, connection: ThreadConnection[SqliteLink]) -> None:
        await connection.open()
        stack.push_async_callback(connection.close)

    async def close(self) -> None:
        self._health.close()
        await self._writes.close()
        await self._resources.aclose()

    async def quick_check(self) -> None:
        await self._checks.run(self._health.quick_check)

    async def integrity_check(self) -> None:
        await self._checks.run(self._health.integrity_check)

    async def write(self, work: Work[T], durability: Durability, locks: Collection[str], *, inline: bool = False) -> T:
        """Run a function in a transaction and return its result after the commit.

        Raises QUEUE_FULL, DRAINING, DATABASE_UNAVAILABLE.
        """
        self._health.raise_if_damaged()
        try:
            result = await self._writes.put(work, durability, locks, inline=inline)
        except (sqlite3.Error, DBAPIError) as error:
            raise self._translated(error) from error.__cause__
        # What is in a file that has lost its name is not kept.
        self._health.check_files()
        return result

    async def read(self, query: Query[T], *, inline: bool = False) -> T:
        self._health.raise_if_damaged()
        try:
            return await self._reads.run(lambda link: link.snapshot(query), inline=inline)
        except (sqlite3.Error, DBAPIError) as error:
            raise self._translated(error) from error.__cause__

    def _translated(self, error: Exception) -> Exception:
        """The error for callers. A lost or damaged file is not used any more."""
        self._health.note_error(error)
        self._health.raise_if_damaged()
        return to_fault(error, self._path)

    def _post(self, batch: list[Job[Any]], done: Callable[[], None]) -> None:
        if not (batch[0].inline and self._writer.write_inline(batch)):
            self._writing.post(lambda _link: self._writer.write(batch), done)
        elif any(job.durability is Durability.FULL and job.error is None for job in batch):
            self._writing.post(lambda _link: self._writer.sync(batch), done)
        else:
            asyncio.get_running_loop().call_soon(done)


def _upgrade(link: SqliteLink) -> None:
    if is_behind(link.raw, SQLITE):
        upgrade_to_head(link.raw, link.core)

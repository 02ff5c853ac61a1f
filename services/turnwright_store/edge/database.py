"""SQLite behind the Database port: one writer with group commit, some readers, wake-ups after each commit.

Theory of operation. Requests queue for the writer. Its task takes all that wait, up to a limit, and hands them to the
writing thread as one batch: one BEGIN IMMEDIATE, one savepoint for each request, one COMMIT. A request that fails is
undone to its savepoint and is the only one that hears of it; the others are answered after the commit. There is no
artificial wait: under load the next batch gathers while the last one is written. `synchronous` is set between
transactions to what the strongest durability in the batch needs.
Source: architecture 3, 12.2, 12.3; docs/adr/0003.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

from turnwright_core.errors import Reason, fault
from turnwright_store.edge.batch import Job, Writer, snapshot
from turnwright_store.edge.connection import ThreadConnection
from turnwright_store.edge.lock import FileLock
from turnwright_store.edge.schema import bring_to_head
from turnwright_store.edge.wakeups import Wakeups
from turnwright_store.ports import Durability, Query, Stats, Subscription, Work

T = TypeVar("T")

BUSY_TIMEOUT_MS: Final = 5000
"""How long a statement waits for somebody who has the file open without our lock (a backup, a shell)."""

_WRITER_PRAGMAS: Final = (
    "journal_mode = WAL",
    "foreign_keys = ON",
    f"busy_timeout = {BUSY_TIMEOUT_MS}",
    "cache_size = -32768",
    "temp_store = MEMORY",
)
_READER_PRAGMAS: Final = (
    "query_only = ON",
    f"busy_timeout = {BUSY_TIMEOUT_MS}",
    "cache_size = -16384",
    "temp_store = MEMORY",
)


class SqliteDatabase:
    """The database file of one store. Source: docs/adr/0003."""

    def __init__(
        self, path: Path, clock_ms: Callable[[], int], *, queue_max: int, batch_max: int, readers: int
    ) -> None:
        """Prepare. `queue_max` bounds the requests that wait for the writer, and those that wait for a reader."""
        self._path = path
        self._queue_max = queue_max
        self._batch_max = batch_max
        self._writer = Writer(clock_ms)
        self._writing = ThreadConnection(path, _WRITER_PRAGMAS)
        self._reading = [ThreadConnection(path, _READER_PRAGMAS) for _ in range(readers)]
        self._idle: asyncio.LifoQueue[ThreadConnection] = asyncio.LifoQueue()
        self._waiting_readers = 0
        self._jobs: deque[Job[Any]] = deque()
        self._filled = asyncio.Event()
        self._wakeups = Wakeups()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._resources = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """Take the file, bring its schema to head, and begin to serve. Raises DatabaseInUseError, SchemaTooNewError."""
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(FileLock(self._path).release)
            await self._open(stack, self._writing)
            await self._writing.run(bring_to_head)
            for reader in self._reading:
                await self._open(stack, reader)
                self._idle.put_nowait(reader)
            self._resources = stack.pop_all()
        self._task = asyncio.create_task(self._serve(), name="store-writer")

    async def _open(self, stack: contextlib.AsyncExitStack, connection: ThreadConnection) -> None:
        await connection.open()
        stack.push_async_callback(connection.shut)

    async def close(self) -> None:
        """Write what waits, then let go of the file."""
        self._closing = True
        self._filled.set()
        if self._task is not None:
            await self._task
            self._task = None
        await self._resources.aclose()

    async def write(self, work: Work[T], durability: Durability, locks: Collection[str]) -> T:  # noqa: ARG002 - one writer needs none
        """Run a function in a transaction and return its result after the commit. Raises QUEUE_FULL."""
        if self._closing:
            raise fault(Reason.DRAINING, "The store is shutting down: call again.")
        if len(self._jobs) >= self._queue_max:
            raise _queue_full("writer", self._queue_max)
        job: Job[T] = Job(work, durability, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self._filled.set()
        return await job.answer

    async def read(self, query: Query[T]) -> T:
        """Run a function on one consistent snapshot. Raises QUEUE_FULL."""
        if self._waiting_readers >= self._queue_max:
            raise _queue_full("readers", self._queue_max)
        self._waiting_readers += 1
        try:
            reader = await self._idle.get()
        finally:
            self._waiting_readers -= 1
        try:
            result: T = await reader.run(lambda raw, core: snapshot(raw, core, query))
            return result
        finally:
            self._idle.put_nowait(reader)

    def subscribe(self, scopes: Collection[int]) -> Subscription:
        """Be woken by commits that raise one of these scopes."""
        return self._wakeups.subscribe(scopes)

    def stats(self) -> Stats:
        """What was done so far."""
        statements = sum(connection.statements for connection in (self._writing, *self._reading))
        return Stats(statements, self._writer.transactions, self._writer.requests)

    async def _serve(self) -> None:
        while not self._closing:
            await self._filled.wait()
            self._filled.clear()
            while self._jobs:
                await self._write_batch([self._jobs.popleft() for _ in range(min(len(self._jobs), self._batch_max))])

    async def _write_batch(self, batch: list[Job[Any]]) -> None:
        await self._writing.run(lambda raw, core: self._writer.commit(raw, core, batch))
        self._wakeups.wake(_raised(batch))
        for job in batch:
            job.reply()


def _raised(batch: Iterable[Job[Any]]) -> set[int]:
    return set().union(*(job.raised for job in batch))


def _queue_full(queue: str, limit: int) -> Exception:
    return fault(Reason.QUEUE_FULL, "The store has too much to do: call again in a moment.", queue=queue, limit=limit)

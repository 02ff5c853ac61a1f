"""PostgreSQL as the store's database, for several replicas of the store at once.

Theory of operation. As on SQLite: one writer with group commit and a savepoint for each request, and some readers on
one asynchronous engine. Where SQLite has a single writer, replicas use advisory locks: a batch first locks the names of
everything that it changes. Every commit is synchronous. A notification with each commit wakes the watchers of
other replicas. Source: architecture 3, 12.2, 12.8; docs/adr/0003, docs/adr/0006.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import TypeVar

from turnwright_values.store import Durability

from turnwright_store.edge.notify_listener import Listener
from turnwright_store.edge.postgres_link import Links, PostgresLink, Server
from turnwright_store.edge.postgres_readers import PostgresReaders
from turnwright_store.edge.postgres_writer import PostgresWriter
from turnwright_store.edge.queues import WriteQueue
from turnwright_store.edge.schema import upgrade_to_head
from turnwright_store.edge.thread import ThreadConnection
from turnwright_store.edge.wakeups import SubscribableDatabase
from turnwright_store.ports import Query, Work

T = TypeVar("T")


class PostgresDatabase(SubscribableDatabase):
    """One replica's connections to the shared database."""

    def __init__(self, server: Server, *, queue_max: int, batch_max: int, readers: int, poll_s: float) -> None:
        """Prepare. `queue_max` limits requests waiting for the writer, and those waiting for a reader.

        All watchers poll every `poll_s` seconds.
        """
        super().__init__()
        self._links = Links(server)
        self._writing = ThreadConnection(PostgresLink(self._links))
        self._readers = PostgresReaders(server, readers=readers, queue_max=queue_max)
        self._writer = PostgresWriter(self._writing.link, self._wakeups.is_followed)
        link = self._writing.link
        self._listener = Listener(server, self._wakeups, lambda: link.pid, poll_s, link.check_silence)
        self._writes = WriteQueue(
            self._writing.post, self._writer.write, self._wakeups, queue_max=queue_max, batch_max=batch_max
        )
        self._resources = contextlib.AsyncExitStack()

    async def start(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            # A start that is cancelled waits for the server no longer.
            stack.callback(self._links.closing.set)
            await self._writing.open()
            stack.push_async_callback(self._writing.close)
            await self._writing.run(lambda link: upgrade_to_head(link.raw, link.core))
            stack.push_async_callback(self._readers.close)
            await self._listener.start()
            self._resources = stack.pop_all()

    async def close(self) -> None:
        self._links.closing.set()
        await self._writes.close()
        await self._listener.stop()
        await self._resources.aclose()

    async def write(self, work: Work[T], durability: Durability, locks: Collection[str]) -> T:
        """Run a function in a transaction under locks and return its result after the commit.

        Raises QUEUE_FULL, DRAINING, DATABASE_UNAVAILABLE.
        """
        return await self._writes.put(work, durability, locks)

    async def read(self, query: Query[T]) -> T:
        return await self._readers.run(query)

    async def quick_check(self) -> None:
        """Nothing: the server checks its own files."""

    async def integrity_check(self) -> None:
        """Nothing, as above."""

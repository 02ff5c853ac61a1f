"""Queries beside the writer, on one asynchronous engine, whatever the database.

A query is a synchronous function of a connection, which a write may call as well: `AsyncConnection.run_sync` runs it in
the event loop, which is free while a statement is under way. All its statements see one snapshot.
Source: docs/adr/0061.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from sqlalchemy import URL, event
from sqlalchemy.ext.asyncio import create_async_engine

from turnwright_core.errors import Reason, fault
from turnwright_store.ports import Query

T = TypeVar("T")


class Readers:
    """Connections for reading, opened when they are needed. The one used last is taken first: its caches are warm."""

    def __init__(self, url: URL, begin: str, *, readers: int, queue_max: int, **options: Any) -> None:
        """`begin` begins a snapshot. `queue_max` limits the queries that wait for one of `readers` connections."""
        self._engine = create_async_engine(
            url,
            pool_size=readers,
            max_overflow=0,
            pool_use_lifo=True,
            hide_parameters=True,
            **options,
        )
        self.events = self._engine.sync_engine
        """What the events of the connections are listened for on."""
        event.listen(self.events, "begin", lambda connection: connection.exec_driver_sql(begin))
        # The pool wakes nobody who waits when the opening of a connection fails or is left: they wait here.
        self._turns = asyncio.Semaphore(readers)
        self._queue_max = queue_max
        self._under_way_max = readers + queue_max
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = False

    async def run(self, query: Query[T]) -> T:
        """Run a query. Raises QUEUE_FULL, DRAINING, and what the query raises."""
        if self._closing:
            raise fault(Reason.DRAINING, "The store is shutting down: retry.")
        if self._under_way >= self._under_way_max:
            raise queue_full("readers", self._queue_max)
        self._under_way += 1
        self._idle.clear()
        try:
            async with self._turns, self._engine.connect() as connection:
                return await connection.run_sync(query)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def close(self) -> None:
        """Accept no more, and disconnect after what is under way."""
        self._closing = True
        await self._idle.wait()
        await self._engine.dispose()


def queue_full(queue: str, limit: int) -> Exception:
    return fault(Reason.QUEUE_FULL, "The store is overloaded: retry in a moment.", queue=queue, limit=limit)

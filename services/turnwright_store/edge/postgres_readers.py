"""Readers of PostgreSQL: a query whose connection is lost is run again on another one."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final, TypeVar, cast

import psycopg
from sqlalchemy import URL, Connection, event
from sqlalchemy.exc import DBAPIError

from turnwright_core.errors import Reason, fault
from turnwright_store.edge.postgres_link import ATTEMPTS_MAX, CONNECT_BACKOFF, Server, hang_up
from turnwright_store.edge.readers import Readers
from turnwright_store.edge.sqlstates import RecoveryAction, driver_error, recovery_of, to_fault
from turnwright_store.ports import Query

T = TypeVar("T")

_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresReaders:
    """Reads one server, for which it waits for a while after a loss."""

    def __init__(self, server: Server, *, readers: int, queue_max: int) -> None:
        """Prepare; the connections are opened when they are needed."""
        self._server = server
        self._lost_s: float | None = None
        url = URL.create("postgresql+psycopg")
        options = {"async_creator": self._connect, "use_native_hstore": False}
        self._readers = Readers(url, _SNAPSHOT, readers=readers, queue_max=queue_max, **options)
        event.listen(self._readers.events, "connect", lambda raw, _record: server.prepare(raw))
        self.close = self._readers.close

    async def _connect(self, **_options: Any) -> psycopg.AsyncConnection[Any]:
        """Connect; waits for a server that is away. Raises DATABASE_UNAVAILABLE."""
        if self._lost_s is None:
            self._lost_s = time.monotonic()
        # Later callers do not wait again: the time counts from the loss.
        end_s, pauses = self._lost_s + self._server.connect_s, CONNECT_BACKOFF.pauses()
        while True:
            try:
                raw = await psycopg.AsyncConnection.connect(self._server.conninfo, **self._server.options)
            except psycopg.Error:
                pause_s = next(pauses)
                if time.monotonic() + pause_s > end_s:
                    raise fault(Reason.DATABASE_UNAVAILABLE, "The database cannot be reached: retry.") from None
                await asyncio.sleep(pause_s)
            else:
                self._lost_s = None
                return raw

    async def run(self, query: Query[T]) -> T:
        """Run a query, again if need be. Raises its errors in the form for its caller."""
        for number in range(1, ATTEMPTS_MAX + 1):
            try:
                return await self._attempt(query)
            except (psycopg.Error, DBAPIError) as error:
                action = _recovery_of(error)
                if action not in (RecoveryAction.AGAIN, RecoveryAction.CONNECT) or number == ATTEMPTS_MAX:
                    raise to_fault(error, action) from None
        raise AssertionError("an attempt returns or raises")

    async def _attempt(self, query: Query[T]) -> T:
        """Run a query, unless the server says nothing for too long."""
        timers: list[asyncio.TimerHandle] = []

        def run(connection: Connection) -> T:
            raw = cast("psycopg.AsyncConnection[Any]", connection.connection.driver_connection)
            timers.append(asyncio.get_running_loop().call_later(self._server.lost_after_s, hang_up, raw))
            return query(connection)

        try:
            return await self._readers.run(run)
        finally:
            for timer in timers:
                timer.cancel()


def _recovery_of(error: Exception) -> RecoveryAction:
    found = driver_error(error)
    # The server's errors have a code; without one, the connection is lost.
    return recovery_of(error, is_open=not (isinstance(found, psycopg.OperationalError) and found.sqlstate is None))

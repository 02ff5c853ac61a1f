"""PostgreSQL as the store's database, for several replicas of the store at once.

Theory of operation. As on SQLite: one writer with group commit and a savepoint for each request, and some readers on
one asynchronous engine. Where SQLite has a single writer, replicas use advisory locks: a batch first locks the names of
everything that it changes. Every commit is synchronous. A notification with each commit wakes the watchers of
other replicas. Source: architecture 3, 12.2, 12.8; docs/adr/0003, docs/adr/0006.

Commits batches on PostgreSQL: locks first, then the clock, then the requests, then one NOTIFY with the COMMIT.

Everything that a batch changes or depends on is locked by name, in the same order on every replica, before its first
statement. Each later statement therefore sees everything that an earlier holder of these locks has committed. This
needs READ COMMITTED: a snapshot for the whole transaction would be taken before the locks are held. Source:
architecture 3; docs/adr/0006.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeVar, cast

import psycopg
from sqlalchemy import URL, Connection, event
from sqlalchemy.exc import DBAPIError
from turnwright_values.store import Durability

from turnwright_core.errors import Reason, fault
from turnwright_kit.logs import get_logger
from turnwright_store.edge.batch import Job, WriteQueue, fail_jobs, run_batch
from turnwright_store.edge.postgres_link import ATTEMPTS_MAX, CONNECT_BACKOFF, Links, PostgresLink, Server, hang_up
from turnwright_store.edge.readers import Readers
from turnwright_store.edge.schema import upgrade_to_head
from turnwright_store.edge.sqlstates import RecoveryAction, commit_unknown, driver_error, recovery_of, to_fault
from turnwright_store.edge.thread import CaughtError, ThreadConnection
from turnwright_store.edge.wakeups import SubscribableDatabase, Wakeups
from turnwright_store.ports import Query, Work

CHANNEL: Final = "turnwright_changes"
"""Notification channel for changed scopes."""

EVERYBODY: Final = "*"
"""Payload if the scopes do not fit into one notification."""

ENTRY_IDS_AT_ONCE: Final = 256
"""Entry ids to allocate at a time; unused ones are lost at shutdown."""

PAYLOAD_BYTES_MAX: Final = 7999
"""PostgreSQL's limit for a notification: less than 8000 bytes."""

_LOCK: Final = (
    "SELECT count(pg_advisory_xact_lock(key)), (extract(epoch FROM clock_timestamp()) * 1000)::bigint "
    "FROM unnest(%s::bigint[]) AS name(key)"
)
"""An aggregate is computed after all its input, so the clock is read after the last lock."""

_SHORT_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = 50"
"""Milliseconds: long enough for concurrent commits to finish."""

_TRY_LOCK: Final = "SELECT pg_try_advisory_xact_lock(%s::bigint)"
_ENTRY_IDS: Final = "SELECT nextval('entries_id_seq') FROM generate_series(1, %s::bigint)"
_NOTIFY: Final = "SELECT pg_notify(%s::text, %s::text)"


def lock_key(name: str) -> int:
    return int.from_bytes(blake2b(f"turnwright:{name}".encode(), digest_size=8).digest(), "big", signed=True)


def lock_keys(names: Iterable[str]) -> list[int]:
    """The advisory lock keys of names, without duplicates, in the global lock order."""
    return sorted(set(map(lock_key, names)))


def payload(bumped: Collection[int]) -> str:
    """The notification for these scopes."""
    text = ",".join(map(str, sorted(bumped)))
    return text if len(text) <= PAYLOAD_BYTES_MAX else EVERYBODY


class PostgresWriter:
    """Commits batches. Used by the writer thread only; is the session of its own transactions."""

    def __init__(self, link: PostgresLink, is_followed: Callable[[int], bool]) -> None:
        self.is_followed = is_followed
        self._link = link
        self._entry_ids: deque[int] = deque()
        self._ids_from: Connection | None = None
        self._is_locked_out = False

    def write(self, batch: Sequence[Job[Any]]) -> None:
        """Run a batch. Never raises: each job then has its result or its error."""
        self._is_locked_out = False
        self._commit(batch)
        if self._is_locked_out:
            # Somebody holds one of the locks: requests for other locks must not suffer, and those that need it have
            # waited long enough.
            for job in batch:
                self._commit([job])
        for job in batch:
            if job.error is not None:
                job.error = to_fault(job.error, recovery_of(job.error, is_open=True))

    def _commit(self, batch: Sequence[Job[Any]]) -> None:
        with CaughtError() as whole:
            self._link.run_transaction(lambda: run_batch(self, batch))
        if whole.error is not None:
            fail_jobs(batch, whole.error)

    @property
    def core(self) -> Connection:
        return self._link.core

    def begin(self, batch: Sequence[Job[Any]]) -> Callable[[], int]:
        """Begin, lock, then read the clock, so that a later lock holder reads a later time."""
        keys = lock_keys(name for job in batch for name in job.locks)
        self._link.send("BEGIN")
        if self._is_locked_out:
            self._link.send(_SHORT_LOCK_TIMEOUT)
        try:
            _, now_ms = self.core.exec_driver_sql(_LOCK, (keys,)).one()
        except DBAPIError as error:
            # A failure here is no single request's fault.
            self._is_locked_out = len(batch) > 1 and isinstance(error.orig, psycopg.errors.LockNotAvailable)
            raise
        return lambda: int(now_ms)

    def entry_ids(self, count: int) -> Sequence[int]:
        """Ids allocated in blocks; a rollback does not return them.

        A crashed server may have forgotten the allocation, so they are valid for one connection only.
        """
        if self.core is not self._ids_from:
            self._entry_ids.clear()
            self._ids_from = self.core
        while len(self._entry_ids) < count:
            asked = max(ENTRY_IDS_AT_ONCE, count)
            self._entry_ids += self.core.exec_driver_sql(_ENTRY_IDS, (asked,)).scalars()
        return [self._entry_ids.popleft() for _ in range(count)]

    def try_lock(self, name: str) -> bool:
        """Try to take one more lock; waiting could deadlock with another batch."""
        return bool(self.core.exec_driver_sql(_TRY_LOCK, (lock_key(name),)).scalar_one())

    def savepoint(self, name: str) -> None:
        self._link.send(f"SAVEPOINT {name}")

    def release(self, name: str) -> None:
        self.core.exec_driver_sql(f"RELEASE {name}")

    def rollback_to(self, name: str, error: Exception) -> None:
        """Roll back to the savepoint, unless the error makes the whole batch run again."""
        if recovery_of(error, is_open=self._link.is_open) in (RecoveryAction.AGAIN, RecoveryAction.CONNECT):
            raise error
        self._link.drain()
        self.core.exec_driver_sql(f"ROLLBACK TO {name}")

    def commit(self, bumped: Collection[int]) -> None:
        """Commit, with a notification of the changed scopes."""
        if bumped:
            self._link.send(_NOTIFY, CHANNEL, payload(bumped))
        try:
            self.core.exec_driver_sql("COMMIT")
        except DBAPIError as error:
            # The server may say that it ends the connection before that has closed.
            if recovery_of(error, is_open=self._link.is_open) is not RecoveryAction.CONNECT:
                raise
            raise commit_unknown(error) from error


_log = get_logger("store.listening")


class Listener:
    """The listening connection of one store.

    Notifications may be lost, so all watchers are woken after each reconnect, and every few seconds. Source:
    architecture 3 (revisions and the change feed).
    """

    def __init__(
        self, server: Server, wakeups: Wakeups, own_pid: Callable[[], int], poll_s: float, poll: Callable[[], None]
    ) -> None:
        """`own_pid` is the backend of this store's writer, whose commits wake local watchers directly.

        `poll` is called every `poll_s` seconds, as all watchers are woken.
        """
        self._server = server
        self._wakeups = wakeups
        self._own_pid = own_pid
        self._poll_s = poll_s
        self._poll = poll
        self._tasks: list[asyncio.Task[None]] = []
        self._first = asyncio.Event()

    async def start(self) -> None:
        """Start, and wait a while for the first connection; without it, watchers are woken late."""
        self._tasks = [
            asyncio.create_task(self._listen(), name="store-listener"),
            asyncio.create_task(self._wake_again(), name="store-poll"),
        ]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._first.wait(), self._server.connect_s)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _listen(self) -> None:
        pauses = CONNECT_BACKOFF.pauses()
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._server.conninfo, **self._server.options
                ) as connection:
                    await connection.execute(f"LISTEN {CHANNEL}")
                    pauses = CONNECT_BACKOFF.pauses()
                    self._wakeups.wake_all()
                    self._first.set()
                    async for notification in connection.notifies():
                        self._on_notify(notification)
            except psycopg.Error as error:
                _log.warning("listening_interrupted", kind=type(error).__name__)
            await asyncio.sleep(next(pauses))

    def _on_notify(self, notification: psycopg.Notify) -> None:
        if notification.pid == self._own_pid():
            return
        if notification.payload == EVERYBODY:
            self._wakeups.wake_all()
            return
        # Anybody who can connect can notify: ignore invalid payloads.
        with contextlib.suppress(ValueError):
            self._wakeups.wake([int(scope) for scope in notification.payload.split(",")])

    async def _wake_again(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            self._poll()
            self._wakeups.wake_all()


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

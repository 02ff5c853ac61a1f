"""A PostgreSQL connection that reconnects."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar, cast
from urllib.parse import unquote, urlsplit

import psycopg
import sqlalchemy
from msgspec import Struct
from psycopg.conninfo import make_conninfo
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from turnwright_core.backoff import Backoff
from turnwright_core.errors import Reason, fault
from turnwright_kit.logs import get_logger
from turnwright_store.edge.schema import DriverConnection
from turnwright_store.edge.sqlstates import RecoveryAction, driver_error, recovery_of, to_fault
from turnwright_store.ports import UNANSWERED

T = TypeVar("T")

CONNECT_BACKOFF: Final = Backoff(0.05, 1.0)
"""Backoff between connection attempts."""

START_BACKOFF: Final = Backoff(0.25, 5.0)
"""Backoff between attempts at a start."""

PROBE_S: Final = 5.0
"""Seconds for a look at a pooler."""

PING_S: Final = 2
"""Seconds within which a server must answer that has just refused a connection."""

ATTEMPTS_MAX: Final = 5
"""Maximum attempts at a transaction that hit a serialization failure, a deadlock or a lost connection."""

_KEEPALIVE: Final = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""Seconds after which a dead host is detected; in milliseconds while data is in flight."""

_log = get_logger("postgres")


class DatabaseUnreachableError(OSError):
    """The database cannot be reached at start-up. The message names the server, never the password."""


class PoolerError(DatabaseUnreachableError):
    """Between the store and the database is a pooler that the store cannot work behind."""


class Server(Struct, frozen=True):
    """Address and timeouts of the database."""

    url: str
    connect_s: float
    statement_s: float
    lock_s: float
    is_awaited: bool = False
    """Whether a start waits until the server answers."""

    @property
    def conninfo(self) -> str:
        return "postgresql://" + self.url.partition("://")[2]

    @property
    def lost_after_s(self) -> float:
        """Seconds of silence after which a server counts as lost while it owes an answer."""
        return 2 * self.statement_s

    @property
    def options(self) -> dict[str, Any]:
        """Connection options besides the URL."""
        return {
            "autocommit": True,
            # libpq takes whole seconds, at least two.
            "connect_timeout": max(2, round(self.connect_s)),
            "fallback_application_name": "turnwright",
            "client_encoding": "utf8",
            # If the URL names several servers, the primary: a standby may lag behind what was acknowledged.
            "target_session_attrs": "read-write",
            **_KEEPALIVE,
        }

    def prepare(self, raw: DriverConnection) -> None:
        """Set the timeouts and the durability; synchronous replication settings of the server are kept."""
        statement_ms, lock_ms = round(self.statement_s * 1000), round(self.lock_s * 1000)
        raw.execute(
            f"SET statement_timeout = {statement_ms}; SET lock_timeout = {lock_ms}; "
            # A replica that freezes in a transaction must not hold its locks forever.
            f"SET idle_in_transaction_session_timeout = {statement_ms}; "
            # Every query uses an index and reads few rows: replanning costs more than running it, JIT compilation even
            # more, and outdated statistics must not make the planner prefer a sequential scan.
            "SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off; "
            "SET enable_hashjoin = off; SET enable_mergejoin = off; "
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') IN ('off', 'local')"
        )

    def check_pooler(self, raw: psycopg.Connection[Any]) -> None:
        """Raises PoolerError if transactions of this connection may have different sessions."""
        backend = _backend_of(raw)
        if backend == raw.info.backend_pid:
            return
        # The server is not who answered when we connected: there is a pooler. If it pools transactions, the session
        # goes to whoever begins one next.
        holding, done, refused = threading.Event(), threading.Event(), threading.Event()
        probe = threading.Thread(target=self._hold_transaction, args=(holding, done, refused), daemon=True)
        probe.start()
        try:
            if not holding.wait(PROBE_S):
                return
            begin_s = time.monotonic()
            # With a single session the answer comes only once the other transaction has ended.
            threading.Timer(PROBE_S, done.set).start()
            is_same = not refused.is_set() and _backend_of(raw) == backend
            if is_same and time.monotonic() - begin_s < PROBE_S:
                return
        finally:
            done.set()
        parts = urlsplit(self.conninfo)
        raise PoolerError(
            f"the database {parts.netloc.rpartition('@')[2]}{parts.path} is behind a pooler that gives each "
            "transaction another session (such as PgBouncer with pool_mode=transaction). The store prepares "
            "statements, listens and sets timeouts in its sessions: give it the address of PostgreSQL itself, or set "
            "pool_mode=session for it."
        )

    def _hold_transaction(self, holding: threading.Event, done: threading.Event, refused: threading.Event) -> None:
        """Hold a transaction of another connection; `refused`: the pooler allows none."""
        with suppress(psycopg.Error), psycopg.Connection.connect(self.conninfo, **self.options) as other:
            try:
                other.execute("BEGIN; SELECT 1")
            except psycopg.Error:
                refused.set()
            holding.set()
            done.wait()

    def is_away(self, error: BaseException) -> bool:
        """Whether it did not answer, or is only just starting. One that refuses this user or database is there."""
        if isinstance(driver_error(error), psycopg.errors.ConnectionTimeout):
            return True
        # Its errors have no codes before a connection is open.
        info = make_conninfo(self.conninfo, connect_timeout=PING_S)
        return psycopg.pq.PGconn.ping(info.encode()) in (psycopg.pq.Ping.NO_RESPONSE, psycopg.pq.Ping.REJECT)

    def unreachable(self, error: BaseException) -> DatabaseUnreachableError:
        """The error that names this server without its secrets."""
        parts = urlsplit(self.conninfo)
        text = str(driver_error(error))
        for secret in {parts.password or "", unquote(parts.password or "")} - {""}:
            text = text.replace(secret, "***")
        return DatabaseUnreachableError(
            f"the database {parts.netloc.rpartition('@')[2]}{parts.path} cannot be reached: {' '.join(text.split())}"
        )


def _backend_of(raw: psycopg.Connection[Any]) -> int:
    """The process that serves a transaction of this connection."""
    [pid] = raw.execute("SELECT pg_backend_pid()").fetchone() or (0,)
    return int(pid)


def hang_up(raw: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Give up a server: who waits for its answer gets the error of a lost connection. Thread-safe."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(raw.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)


class Links:
    """Creates the connections of one store, which share SQLAlchemy's knowledge of the server."""

    def __init__(self, server: Server) -> None:
        """Prepare; nothing is connected yet."""
        self.server = server
        self._is_checked = False
        """Whether transactions are known to have one session."""
        self.closing = threading.Event()
        """Set at the shutdown, which must not wait for the server."""
        self.engine = sqlalchemy.create_engine(
            "postgresql+psycopg://",
            creator=self._connect,
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            pool_reset_on_return=None,
            use_native_hstore=False,
            hide_parameters=True,
        )

    def _connect(self) -> psycopg.Connection[Any]:
        raw = psycopg.Connection.connect(self.server.conninfo, **self.server.options)
        try:
            if not self._is_checked:
                self.server.check_pooler(raw)
                self._is_checked = True
            self.server.prepare(raw)
        except BaseException:
            raw.close()
            raise
        return raw


class PostgresLink:
    """One psycopg connection, and the SQLAlchemy connection on it."""

    def __init__(self, links: Links) -> None:
        """Prepare; `open` connects."""
        self._links = links
        self._core: sqlalchemy.Connection | None = None
        self._raw: psycopg.Connection[Any] | None = None
        self._pipeline: psycopg.Pipeline | None = None
        self._asked_s: float | None = None
        """When it began to wait for the server."""
        self._lost_s: float | None = None

    @property
    def core(self) -> sqlalchemy.Connection:
        assert self._core is not None, "not connected"
        return self._core

    @property
    def raw(self) -> psycopg.Connection[Any]:
        assert self._raw is not None, "not connected"
        return self._raw

    @property
    def is_open(self) -> bool:
        """Whether the connection is open, as far as is known."""
        return self._raw is not None and not self._raw.closed

    @property
    def pid(self) -> int:
        """Process id of the server's backend; 0 if not connected."""
        raw = self._raw
        return 0 if raw is None or raw.closed else raw.info.backend_pid

    def open(self) -> None:
        """Connect, as soon as the server answers if it is awaited. Raises DatabaseUnreachableError."""
        server, pauses = self._links.server, START_BACKOFF.pauses()
        while True:
            try:
                return self._open()
            except (psycopg.Error, DBAPIError) as error:
                problem = server.unreachable(error)
                if not (server.is_awaited and server.is_away(error)):
                    raise problem from None
            _log.warning("database_awaited", problem=str(problem))
            if self._links.closing.wait(next(pauses)):
                raise problem

    def _open(self) -> None:
        self._core = self._links.engine.connect()
        self._raw = cast("psycopg.Connection[Any]", self._core.connection.driver_connection)
        sqlalchemy.event.listen(self._core, "after_cursor_execute", self._await_answer)
        self._lost_s = None

    def close(self) -> None:
        """Disconnect; the server rolls back an open transaction."""
        if self._core is not None:
            self._core.invalidate()
            self._core.close()
            self._core = self._raw = None

    def ensure_connected(self) -> None:
        """Ensure that it is connected. After a loss, waits for the server for a while. Raises DATABASE_UNAVAILABLE."""
        if self.is_open:
            return
        if self._lost_s is None:
            self._lost_s = time.monotonic()
        self.close()
        # Later callers do not wait again: the time counts from the loss.
        end_s, pauses = self._lost_s + self._links.server.connect_s, CONNECT_BACKOFF.pauses()
        while not self._reopened():
            pause_s = next(pauses)
            if time.monotonic() + pause_s > end_s or self._links.closing.wait(pause_s):
                raise fault(Reason.DATABASE_UNAVAILABLE, "The database cannot be reached: retry.")

    def _reopened(self) -> bool:
        try:
            self._open()
        except (psycopg.Error, DBAPIError):
            return False
        return True

    def run_transaction(self, transaction: Callable[[], T]) -> T:
        """Run a transaction with retries. Raises its errors in the form for its caller."""
        for number in range(1, ATTEMPTS_MAX + 1):
            self.ensure_connected()
            try:
                with self._pipelined():
                    return transaction()
            except (psycopg.Error, DBAPIError) as error:
                action = recovery_of(error, is_open=self.is_open)
                self._undo(action)
                if action not in (RecoveryAction.AGAIN, RecoveryAction.CONNECT) or number == ATTEMPTS_MAX:
                    raise to_fault(error, action) from None
            except BaseException:
                self._undo(RecoveryAction.NONE)
                raise
        raise AssertionError("an attempt returns or raises")

    @contextmanager
    def _pipelined(self) -> Iterator[None]:
        is_done = False
        try:
            with self.raw.pipeline() as pipeline:
                self._pipeline = pipeline
                try:
                    yield
                finally:
                    self._pipeline = None
                is_done = True
        except psycopg.Error:
            if not is_done:
                raise
            # The connection was lost when everything had been answered: what was committed must not be run again.
            self.close()

    def _await_answer(
        self, _core: Any, cursor: Any, statement: str, _parameters: Any, context: Any, _is_many: bool
    ) -> None:
        """Wait for the server, with all that was sent before, where somebody reads the answer."""
        if self._pipeline and not context.execution_options.get(UNANSWERED):
            self._asked_s = time.monotonic()
            try:
                self._pipeline.sync()
            finally:
                self._asked_s = None
            if statement == "COMMIT" and cursor.statusmessage != "COMMIT":
                # A request continued after one of its statements had failed; the server has rolled everything back.
                raise psycopg.InternalError("the transaction was not committed")

    def send(self, sql: str, *values: object) -> None:
        """Execute a statement whose answer nobody reads."""
        self.core.exec_driver_sql(sql, values or None, execution_options={UNANSWERED: True})

    def check_silence(self) -> None:
        """Give up a server that owes an answer for too long: who waits for it is told, and reconnects. Thread-safe."""
        raw, asked_s = self._raw, self._asked_s
        if raw and asked_s is not None and time.monotonic() - asked_s > self._links.server.lost_after_s:
            hang_up(raw)

    def drain(self) -> None:
        """Wait for everything that was sent, ignoring errors."""
        if self._pipeline:
            with suppress(psycopg.Error):
                self._pipeline.sync()

    def _undo(self, action: RecoveryAction) -> None:
        """Roll back, and close an unusable connection."""
        if action is RecoveryAction.CONNECT or not self.is_open:
            self.close()
            return
        try:
            self.core.exec_driver_sql("ROLLBACK")
        except DBAPIError:
            self.close()

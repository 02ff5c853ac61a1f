"""Pipelined statements for PostgreSQL: sent without waiting, until a result is needed.

Theory of operation. libpq's pipeline mode accepts a statement before the previous one is answered. A statement is sent
at once, and its result is read on demand, together with all earlier results: a round trip for each needed result
instead of each statement. After an error the server skips statements up to the next sync; the error is raised at the
next wait. Statements are prepared once per connection, and the server knows the types of their parameters.
Source: PostgreSQL 15, 34.5 (pipeline mode); docs/adr/0006.
"""

from __future__ import annotations

import contextlib
import select
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count, repeat
from struct import Struct, pack
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result

BIGINT: Final = 20
TEXT: Final = 25
BYTEA: Final = 17
BOOLEAN: Final = 16
FLOAT: Final = 701
"""Type OIDs of PostgreSQL."""

_GOOD: Final = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)


def array(kind: int, values: Sequence[Any]) -> bytes:
    """A list of values of one type, possibly None, as one parameter in PostgreSQL's binary form."""
    return pack("!iiiii", 1, 1, kind, len(values), 1) + _ITEMS[kind](values)


_LENGTH: Final = Struct("!i")
"""Precedes each item of a list."""


def _numbers(values: Sequence[Any]) -> bytes:
    if None in values:
        return b"".join(b"\xff\xff\xff\xff" if value is None else pack("!iq", 8, value) for value in values)
    return pack("!" + "iq" * len(values), *chain.from_iterable(zip(repeat(8), values)))


def _items(encode: Callable[[Any], bytes]) -> Callable[[Sequence[Any]], bytes]:
    def join(values: Sequence[Any]) -> bytes:
        if None in values:
            return b"".join(b"\xff\xff\xff\xff" if value is None else join((value,)) for value in values)
        # Per item only C code runs here.
        items = list(map(encode, values))
        return b"".join(chain.from_iterable(zip(map(_LENGTH.pack, map(len, items)), items, strict=True)))

    return join


_ITEMS: Final[dict[int, Callable[[Sequence[Any]], bytes]]] = {
    BIGINT: _numbers,
    TEXT: _items(str.encode),
    BYTEA: _items(bytes),
    BOOLEAN: _items(lambda value: b"\x01" if value else b"\x00"),
    FLOAT: _items(lambda value: pack("!d", value)),
}


class PipelineResult:
    """The result of one statement; read on demand. Replaces the driver's cursor."""

    __slots__ = ("_pipe", "error", "result")

    def __init__(self, pipe: StatementPipeline) -> None:
        self._pipe = pipe
        self.result: pq.abc.PGresult | None = None
        self.error: psycopg.Error | None = None

    def _fetch(self) -> pq.abc.PGresult:
        if self.result is None and self.error is None:
            self._pipe.sync()
        if self.error is not None:
            raise self.error
        assert self.result is not None, "a statement is answered before the next synchronization"
        return self.result

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._pipe.rows(self._fetch()))

    @property
    def rowcount(self) -> int:
        return self._fetch().command_tuples or 0

    @property
    def status(self) -> str:
        return (self._fetch().command_status or b"").decode()

    def close(self) -> None:
        """Nothing to release."""


class StatementPipeline:
    """The pipelined statements of one connection. Not thread-safe."""

    def __init__(self, raw: psycopg.Connection[Any], lost_after_s: float) -> None:
        """For a connection that nobody else uses except between `leave` and the next statement.

        If the server owes an answer and is silent for `lost_after_s` seconds, the connection is closed as lost.
        """
        self.trips = 0
        """Number of round trips."""
        self._pgconn = raw.pgconn
        self._silence_s = lost_after_s
        self._names: dict[str, bytes] = {}
        self._numbers = count(1)
        # What the next results belong to: a statement, a prepared name, or a sync (None).
        self._coming: deque[PipelineResult | str | None] = deque()
        self._poll = select.poll()
        self._transformer = Transformer.from_context(raw)

    def send(self, sql: str, values: Sequence[Any] = ()) -> PipelineResult:
        """Send a statement without waiting."""
        if not self._pgconn.pipeline_status:
            self._enter()
        name = self._names.get(sql)
        if name is None:
            name = self._names[sql] = b"s%d" % next(self._numbers)
            self._pgconn.send_prepare(name, sql.encode())
            self._coming.append(sql)
        answer = PipelineResult(self)
        formats = [PyFormat.BINARY if isinstance(value, bytes) else PyFormat.TEXT for value in values]
        parameters = self._transformer.dump_sequence(values, formats)
        self._pgconn.send_query_prepared(name, parameters, self._transformer.formats, 1)
        self._coming.append(answer)
        return answer

    def query(self, sql: str, values: Sequence[Any] = ()) -> PipelineResult:
        """Send a statement and wait for its result. Raises its error or that of an earlier one."""
        answer = self.send(sql, values)
        self.sync()
        return answer

    def _enter(self) -> None:
        self._pgconn.enter_pipeline_mode()
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, select.POLLIN)

    def push(self) -> None:
        """Flush everything that was sent, without waiting for results."""
        self.trips += 1
        self._pgconn.pipeline_sync()
        self._coming.append(None)
        self._flush()

    def sync(self) -> None:
        """Wait for everything that was sent. Raises the first error."""
        if not self._coming:
            return
        if self._coming[-1] is not None:
            self.push()
        failed: psycopg.Error | None = None
        while self._coming:
            failed = self._next(failed)
        if failed is not None:
            raise failed

    def drain_quietly(self) -> None:
        """Wait for everything that was sent, ignoring errors."""
        with contextlib.suppress(psycopg.Error):
            self.sync()

    def rows(self, result: pq.abc.PGresult) -> list[tuple[Any, ...]]:
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    def _next(self, failed: psycopg.Error | None) -> psycopg.Error | None:
        """Read the next result; returns the first error so far."""
        result = self._read()
        coming = self._coming.popleft()
        if coming is None:
            return failed
        self._read_end()
        if result.status in _GOOD:
            if isinstance(coming, PipelineResult):
                coming.result = result
            return failed
        # After the first error the server only reports that it skipped the rest.
        failed = failed or error_from_result(result, encoding="utf-8")
        if isinstance(coming, PipelineResult):
            coming.error = failed
        else:
            del self._names[coming]
        return failed

    def _read(self) -> pq.abc.PGresult:
        self._await()
        result = self._pgconn.get_result()
        if result is None:
            raise psycopg.OperationalError("the connection is lost")
        return result

    def _read_end(self) -> None:
        """Read the message that ends a statement's result."""
        self._await()
        self._pgconn.get_result()

    def _await(self) -> None:
        while self._pgconn.is_busy():
            self._events()
            self._pgconn.consume_input()

    def _events(self) -> list[tuple[int, int]]:
        """Wait until the connection is readable or writable."""
        events = self._poll.poll(self._silence_s * 1000)
        if not events:
            self._pgconn.finish()
            raise psycopg.OperationalError(f"the server has said nothing for {self._silence_s:g} s")
        return events

    def _flush(self) -> None:
        while self._pgconn.flush():
            self._poll.modify(self._pgconn.socket, select.POLLIN | select.POLLOUT)
            # A server with blocked output reads no more statements.
            if any(event & select.POLLIN for _, event in self._events()):
                self._pgconn.consume_input()
            self._poll.modify(self._pgconn.socket, select.POLLIN)

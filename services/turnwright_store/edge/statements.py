"""Runs statements on the driver's own cursor, compiled once.

Theory of operation. SQLAlchemy Core generates the SQL and knows the types; but its execution costs many times what the
database needs for a row (a context, a result, events at each call). Our statements are module constants, so each is
compiled once for the dialect, with positional parameters and their converters; those for SQLite are compiled when the
store is built (see edge.precompiled). A call is then: convert, execute, convert. An IN list is padded to the next power
of two (its last value repeated), for few distinct texts to prepare.
Source: architecture 12.2; docs/adr/0007, docs/adr/0049.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from types import TracebackType
from typing import Any, Final, Self

from turnwright_store.ports import SQLITE
from turnwright_store.sql.lazy import Lazy, built, digest_of

_LIST: Final = re.compile(r"__\[POSTCOMPILE_(\w+)\]")
_ROW: Final = re.compile(r"(?<= VALUES )(\(.*?\))(?= RETURNING |$)")

ROWS_SPELLED_MAX: Final = 16
"""Maximum rows of a multi-row INSERT; each number of rows is another prepared statement."""

Convert = Callable[[Any], Any]
Values = Mapping[str, Any]
Converters = tuple[tuple[int, Convert], ...]
"""Which values of a row are converted, by position, and how."""

NO_VALUES: Final[Values] = {}


class CompiledStatement:
    """A statement as the driver takes it."""

    def __init__(
        self,
        sql: str,
        names: tuple[str, ...],
        constants: Values,
        writes: Converters,
        lists: tuple[int, ...],
        reads: Converters,
        *,
        returns: bool,
    ) -> None:
        """`names` are those of the parameters, by position; `constants` those whose value stands in the statement.

        `lists` are the positions of parameters that are lists, the last one first; `returns`: whether there are rows.
        """
        self.sql = sql
        self.names = names
        self.constants = constants
        # The items of a list are converted one by one.
        self.writes = tuple((place, _each(write) if place in lists else write) for place, write in writes)
        self.lists = lists
        self.reads = reads
        self.returns = returns
        self._values = itemgetter(*names) if len(names) > 1 else lambda values: [values[name] for name in names]
        self._spelled: dict[object, str] = {}

    def arguments(self, values: Values) -> Sequence[Any]:
        """The parameters by position, converted; those of a list stay one."""
        row = self._values({**self.constants, **values} if self.constants else values)
        return self.written(row) if self.writes else row

    def written(self, row: Sequence[Any]) -> Sequence[Any]:
        """Parameters by position, converted."""
        arguments = list(row)
        for place, write in self.writes:
            if arguments[place] is not None:
                arguments[place] = write(arguments[place])
        return arguments

    def with_lists(self, given: Sequence[Any]) -> tuple[str, list[Any]]:
        """The SQL with the items of each list spelled out, and the parameters in these places."""
        arguments = list(given)
        counts: list[int] = []
        # From the last on, so that the places of those before it stay.
        for place in self.lists:
            listed = list(arguments[place])
            count = 1 << (len(listed) - 1).bit_length() if listed else 0
            arguments[place : place + 1] = listed + listed[-1:] * (count - len(listed))
            counts.append(count)
        key = tuple(counts)
        if key not in self._spelled:
            self._spelled[key] = _LIST.sub(lambda _: ", ".join("?" * counts.pop()), self.sql)
        return self._spelled[key], arguments

    def for_rows(self, count: int) -> str:
        """The SQL of an INSERT of so many rows."""
        if count not in self._spelled:
            self._spelled[count] = _ROW.sub(lambda row: ", ".join([row[1]] * count), self.sql)
        return self._spelled[count]


def _each(write: Convert) -> Convert:
    return lambda values: [write(value) for value in values]


class CursorRows:
    """The rows of one statement, as tuples. The part of SQLAlchemy's Result that the store uses."""

    __slots__ = ("_cursor", "_reads")

    def __init__(self, cursor: Any, reads: Converters) -> None:
        """Of a cursor that has executed, or of rows that were fetched."""
        self._cursor = cursor
        self._reads = reads

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return map(self._converted, self._cursor) if self._reads else iter(self._cursor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._cursor.close()

    def _converted(self, row: Sequence[Any]) -> tuple[Any, ...]:
        values = list(row)
        for place, read in self._reads:
            if values[place] is not None:
                values[place] = read(values[place])
        return tuple(values)

    def all(self) -> list[tuple[Any, ...]]:
        return list(self)

    def first(self) -> tuple[Any, ...] | None:
        return next(iter(self), None)

    def one_or_none(self) -> tuple[Any, ...] | None:
        """The only row, if there is one. Raises AssertionError for more than one."""
        found = list(self)
        assert len(found) < 2, f"{len(found)} rows where one was expected"
        return found[0] if found else None

    def one(self) -> tuple[Any, ...]:
        found = self.one_or_none()
        if found is None:
            raise LookupError("no row where one was expected")
        return found

    def scalar_one(self) -> Any:
        return self.one()[0]

    def scalar_one_or_none(self) -> Any:
        found = self.one_or_none()
        return found[0] if found else None

    def scalar(self) -> Any:
        found = self.first()
        return found[0] if found else None

    def scalars(self) -> Iterator[Any]:
        return (row[0] for row in self)

    @property
    def rowcount(self) -> int:
        return int(self._cursor.rowcount)


class Statements:
    """The compiled statements of one kind of database; shared by its connections."""

    def __init__(
        self,
        compiler: Callable[[Any], CompiledStatement],
        precompiled: Callable[[str], CompiledStatement | None] = lambda _digest: None,
    ) -> None:
        """`compiler` compiles for a dialect whose parameters go by position; `precompiled` finds one by its digest."""
        self._compile = compiler
        self._precompiled = precompiled
        # The statement is kept too, so that its id is not reused.
        self._compiled: dict[int, tuple[Any, CompiledStatement]] = {}

    def compiled(self, statement: Any) -> CompiledStatement:
        found = self._compiled.get(id(statement))
        if found is None:
            digest = digest_of(statement) if isinstance(statement, Lazy) else ""
            compiled = self._precompiled(digest) or self._compile(built(statement))
            found = self._compiled[id(statement)] = (statement, compiled)
        return found[1]

    def insertion(self, statement: Any, columns: tuple[str, ...]) -> CompiledStatement:
        """The compiled INSERT of rows of these columns."""
        compiled = self.compiled(statement)
        assert compiled.names == columns, f"the order of the table is {compiled.names}"
        return compiled


class DirectConnection:
    """Stands for a SQLAlchemy connection where statements are executed; `cursor` opens the driver's cursor."""

    dialect = SQLITE
    is_remote = False
    """Whether each answer that is waited for costs a trip."""

    def __init__(self, statements: Statements, cursor: Callable[[], Any]) -> None:
        self.executed = 0
        """Number of statements."""
        self.cursor = cursor
        self._statements = statements

    def execute(self, statement: Any, values: Values = NO_VALUES) -> CursorRows:
        compiled = self._statements.compiled(statement)
        sql, arguments = compiled.sql, compiled.arguments(values)
        if compiled.lists:
            sql, arguments = compiled.with_lists(arguments)
        self.executed += 1
        cursor = self.cursor()
        cursor.execute(sql, arguments)
        return CursorRows(cursor, compiled.reads)

    def execute_many(self, statement: Any, values: Sequence[Values]) -> None:
        compiled = self._statements.compiled(statement)
        self.executed += 1
        self.cursor().executemany(compiled.sql, list(map(compiled.arguments, values)))

    def insert(self, statement: Any, columns: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> CursorRows:
        compiled = self._statements.insertion(statement, columns)
        given = list(map(compiled.written, rows))
        self.executed += 1
        cursor = self.cursor()
        if len(given) <= ROWS_SPELLED_MAX or compiled.returns:
            cursor.execute(compiled.for_rows(len(given)), list(chain.from_iterable(given)))
        else:
            cursor.executemany(compiled.sql, given)
        return CursorRows(cursor, compiled.reads)

    def prefetch(self, statement: Any, values: Values) -> CursorRows:
        return self.execute(statement, values)

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
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from msgspec import Struct

from turnwright_store.ports import SQLITE, Converters, Rows
from turnwright_store.sql.compression import READERS, WRITERS

_LIST: Final = re.compile(r"__\[POSTCOMPILE_(\w+)\]")
_ROW: Final = re.compile(r"(?<= VALUES )(\(.*?\))(?= RETURNING |$)")

ROWS_SPELLED_MAX: Final = 16
"""Maximum rows of a multi-row INSERT; each number of rows is another prepared statement."""

Values = Mapping[str, Any]

NO_VALUES: Final[Values] = {}

TypeNames = tuple[tuple[int, str], ...]
"""Which parameters or columns are converted, by position, and the names of their types (see sql.compression)."""


class CompiledStatement(Struct, array_like=True, dict=True):
    """A statement as the driver takes it, and as it is stored."""

    sql: str
    names: tuple[str, ...]
    """Names of the parameters, by position."""
    constants: dict[str, Any]
    """Values that stand in the statement, by the name of their parameter."""
    writes: TypeNames
    lists: tuple[int, ...]
    """Positions of the parameters that are lists, the last one first."""
    reads: TypeNames
    returns: bool
    """Whether there are rows."""

    def prepare(self, dialect: str = SQLITE) -> CompiledStatement:
        """Find the converters for a dialect; returns the statement."""
        self.readers: Converters = tuple((place, READERS[name]) for place, name in self.reads)
        self._writers = tuple((place, WRITERS[dialect][name]) for place, name in self.writes)
        self._values = itemgetter(*self.names) if len(self.names) > 1 else self._few_values
        self._spelled: dict[object, str] = {}
        return self

    def _few_values(self, values: Values) -> Sequence[Any]:
        return [values[name] for name in self.names]

    def arguments(self, values: Values) -> Sequence[Any]:
        """The parameters by position, converted; those of a list stay one."""
        row = self._values({**self.constants, **values} if self.constants else values)
        return self.written(row) if self._writers else row

    def written(self, row: Sequence[Any]) -> Sequence[Any]:
        """Parameters by position, converted; the items of a list one by one."""
        arguments = list(row)
        for place, write in self._writers:
            value = arguments[place]
            if place in self.lists:
                arguments[place] = list(map(write, value))
            elif value is not None:
                arguments[place] = write(value)
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


class DirectConnection:
    """Stands for a SQLAlchemy connection where statements are executed; `cursor` opens the driver's cursor."""

    dialect = SQLITE

    def __init__(self, compiler: Callable[[Any], CompiledStatement], cursor: Callable[[], Any]) -> None:
        """`compiler` compiles a statement, or finds it compiled, for a dialect whose parameters go by position."""
        self.executed = 0
        """Number of statements."""
        self._compiler = compiler
        self.cursor = cursor

    def execute(self, statement: Any, values: Values = NO_VALUES) -> Rows:
        compiled = self._compiler(statement)
        sql, arguments = compiled.sql, compiled.arguments(values)
        if compiled.lists:
            sql, arguments = compiled.with_lists(arguments)
        self.executed += 1
        cursor = self.cursor()
        cursor.execute(sql, arguments)
        return Rows(cursor, compiled.readers)

    def execute_many(self, statement: Any, values: Sequence[Values]) -> None:
        compiled = self._compiler(statement)
        self.executed += 1
        self.cursor().executemany(compiled.sql, list(map(compiled.arguments, values)))

    def insert(self, into: tuple[Any, tuple[str, ...]], rows: Sequence[Sequence[Any]]) -> Rows:
        statement, columns = into
        compiled = self._compiler(statement)
        assert compiled.names == columns, f"the order of the table is {compiled.names}"
        given = list(map(compiled.written, rows))
        self.executed += 1
        cursor = self.cursor()
        if len(given) <= ROWS_SPELLED_MAX or compiled.returns:
            cursor.execute(compiled.for_rows(len(given)), list(chain.from_iterable(given)))
        else:
            cursor.executemany(compiled.sql, given)
        return Rows(cursor, compiled.readers)

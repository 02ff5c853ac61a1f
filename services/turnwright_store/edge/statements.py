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

from turnwright_store.ports import SQLITE, Convert, Converters, Rows
from turnwright_store.sql.lazy import Lazy, built, digest_of

_LIST: Final = re.compile(r"__\[POSTCOMPILE_(\w+)\]")
_ROW: Final = re.compile(r"(?<= VALUES )(\(.*?\))(?= RETURNING |$)")

ROWS_SPELLED_MAX: Final = 16
"""Maximum rows of a multi-row INSERT; each number of rows is another prepared statement."""

Values = Mapping[str, Any]

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
        self._compiled: dict[int, CompiledStatement] = {}
        self._statements: list[Any] = []
        """Those that were compiled, kept so that their ids are not reused."""

    def compiled(self, statement: Any) -> CompiledStatement:
        try:
            return self._compiled[id(statement)]
        except KeyError:
            digest = digest_of(statement) if isinstance(statement, Lazy) else ""
            found = self._compiled[id(statement)] = self._precompiled(digest) or self._compile(built(statement))
            self._statements.append(statement)
            return found

    def insertion(self, statement: Any, columns: tuple[str, ...]) -> CompiledStatement:
        """The compiled INSERT of rows of these columns."""
        compiled = self.compiled(statement)
        assert compiled.names == columns, f"the order of the table is {compiled.names}"
        return compiled


class DirectConnection:
    """Stands for a SQLAlchemy connection where statements are executed; `cursor` opens the driver's cursor."""

    dialect = SQLITE

    def __init__(self, statements: Statements, cursor: Callable[[], Any]) -> None:
        self.executed = 0
        """Number of statements."""
        self.cursor = cursor
        self._statements = statements

    def execute(self, statement: Any, values: Values = NO_VALUES) -> Rows:
        compiled = self._statements.compiled(statement)
        sql, arguments = compiled.sql, compiled.arguments(values)
        if compiled.lists:
            sql, arguments = compiled.with_lists(arguments)
        self.executed += 1
        cursor = self.cursor()
        cursor.execute(sql, arguments)
        return Rows(cursor, compiled.reads)

    def execute_many(self, statement: Any, values: Sequence[Values]) -> None:
        compiled = self._statements.compiled(statement)
        self.executed += 1
        self.cursor().executemany(compiled.sql, list(map(compiled.arguments, values)))

    def insert(self, statement: Any, columns: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> Rows:
        compiled = self._statements.insertion(statement, columns)
        given = list(map(compiled.written, rows))
        self.executed += 1
        cursor = self.cursor()
        if len(given) <= ROWS_SPELLED_MAX or compiled.returns:
            cursor.execute(compiled.for_rows(len(given)), list(chain.from_iterable(given)))
        else:
            cursor.executemany(compiled.sql, given)
        return Rows(cursor, compiled.reads)

    def prefetch(self, statement: Any, values: Values) -> Rows:
        return self.execute(statement, values)

"""Runs SQLAlchemy Core statements on the driver's own cursor, compiled once.

Theory of operation. Core generates the SQL and knows the types; but its execution costs many times what the database
needs for a row (a context, a result, events at each call). Our statements are module constants, so each is compiled
once for the dialect, with positional parameters and their converters; a call is then: convert, execute, convert. An IN
list is padded to the next power of two (its last value repeated), for few distinct texts to prepare.
Source: architecture 12.2; docs/adr/0007.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from types import TracebackType
from typing import Any, Final, Self

from msgspec import Struct
from msgspec.structs import force_setattr

from turnwright_store.ports import SQLITE, RowsOf
from turnwright_store.sql.lazy import Lazy, built, digest_of

Kept = Callable[[str], "CompiledStatement | None"]
"""Finds what was compiled before, by its digest."""

_EXPANDED: Final = re.compile(r"__\[POSTCOMPILE_(\w+)\]")
_ROW: Final = re.compile(r"(?<= VALUES )(\(.*?\))(?= RETURNING |$)")

ROWS_A_STATEMENT: Final = 1000
"""Rows in one INSERT with RETURNING; each of their values is a parameter."""

ROWS_SPELLED_MAX: Final = 16
"""Maximum rows of a multi-row INSERT; each number of rows is another prepared statement."""

Convert = Callable[[Any], Any]
Values = Mapping[str, Any]
Results = tuple[tuple[int, Convert], ...]
"""Which columns of a row are converted, and how."""


class CompiledStatement(Struct, frozen=True):
    """A statement as the driver takes it."""

    sql: str
    names: tuple[str, ...]
    """Parameters by position."""
    take: Callable[[Values], Sequence[Any]]
    """Their values, by position."""
    constants: Values
    """Those whose value stands in the statement."""
    converts: tuple[tuple[int, Convert], ...]
    """Which of them are converted, by position, and how."""
    expanded: frozenset[str]
    """Those that are lists."""
    results: Results
    returns: bool
    """Whether there are rows."""
    is_of_columns: bool = False
    """Whether it is of the columns that it was compiled for."""
    lists: tuple[int, ...] = ()
    """Where the lists stand among the parameters, the last one first."""

    def __post_init__(self) -> None:
        """Find the lists."""
        places = (index for index, name in enumerate(self.names) if name in self.expanded)
        force_setattr(self, "lists", tuple(places)[::-1])


class CursorRows:
    """The rows of one statement, as tuples. The part of SQLAlchemy's Result that the store uses."""

    __slots__ = ("_cursor", "_results")

    def __init__(self, cursor: Any, results: Results) -> None:
        """Of a cursor that has executed, or of rows that were fetched."""
        self._cursor = cursor
        self._results = results

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        if not self._results:
            return iter(self._cursor)
        return map(self._converted, self._cursor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._cursor.close()

    def _converted(self, row: Sequence[Any]) -> tuple[Any, ...]:
        values = list(row)
        for place, convert in self._results:
            if values[place] is not None:
                values[place] = convert(values[place])
        return tuple(values)

    def all(self) -> list[tuple[Any, ...]]:
        return list(self)

    def first(self) -> tuple[Any, ...] | None:
        return next(iter(self), None)

    def one_or_none(self) -> tuple[Any, ...] | None:
        """The only row, if there is one. Raises AssertionError for more than one."""
        found: list[tuple[Any, ...]] = list(self._cursor)
        if not found:
            return None
        assert len(found) == 1, f"{len(found)} rows where one was expected"
        return self._converted(found[0]) if self._results else found[0]

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

    def __init__(self, compiler: Callable[[Any, Values], CompiledStatement], kept: Kept) -> None:
        """`compiler` compiles for a dialect whose parameters go by position; `kept` finds what was compiled before."""
        self._compile = compiler
        self._kept = kept
        # The statement is kept too, so that its id is not reused.
        self._compiled: dict[int, tuple[Any, CompiledStatement]] = {}
        self._inserts: dict[tuple[int, tuple[str, ...]], tuple[Any, CompiledStatement]] = {}
        self._with_list_lengths: dict[tuple[int, tuple[int, ...]], str] = {}

    def compiled(self, statement: Any, values: Values) -> CompiledStatement:
        """The compiled statement; an insert for these columns."""
        found = self._compiled.get(id(statement)) or self._inserts.get((id(statement), tuple(values)))
        return found[1] if found else self._first(statement, values)

    def _first(self, statement: Any, values: Values) -> CompiledStatement:
        kept = self._kept(digest_of(statement)) if isinstance(statement, Lazy) else None
        compiled = kept or self._compile(built(statement), values)
        if compiled.is_of_columns:
            # An insert for the given columns; the others get their defaults.
            self._inserts[id(statement), tuple(values)] = (statement, compiled)
        else:
            self._compiled[id(statement)] = (statement, compiled)
        return compiled

    def for_columns(self, statement: Any, columns: tuple[str, ...]) -> CompiledStatement:
        """The insert of values in this order."""
        compiled = self.compiled(statement, dict.fromkeys(columns))
        assert compiled.names == columns, f"the order of the table is {compiled.names}"
        return compiled

    def expand_lists(self, compiled: CompiledStatement, counts: tuple[int, ...]) -> str:
        """The SQL with lists of these lengths."""
        key = (id(compiled), counts)
        found = self._with_list_lengths.get(key)
        if found is None:
            left = iter(counts)
            found = _EXPANDED.sub(lambda _: ", ".join("?" * next(left)), compiled.sql)
            self._with_list_lengths[key] = found
        return found

    def for_rows(self, compiled: CompiledStatement, count: int) -> str:
        """The SQL of an INSERT for so many rows."""
        key = (id(compiled), (count,))
        found = self._with_list_lengths.get(key)
        if found is None:
            found = _ROW.sub(lambda row: ", ".join([row[1]] * count), compiled.sql)
            self._with_list_lengths[key] = found
        return found


class DirectConnection:
    """Stands for a SQLAlchemy connection where statements are executed; `cursor` opens the driver's cursor."""

    dialect = SQLITE
    is_remote = False
    """Whether each answer that is waited for costs a trip."""

    def __init__(self, statements: Statements, cursor: Callable[[], Any]) -> None:
        self.cursor = cursor
        """Opens one of the driver's."""
        self.executed = 0
        """Statements that went through the driver's cursor."""
        self._statements = statements

    def execute(self, statement: Any, values: dict[str, Any] | Sequence[Values] | None = None) -> Any:
        if values is None or isinstance(values, dict):
            return self._one(statement, values or {})
        if isinstance(values, RowsOf):
            return self._add(statement, values)
        if len(values) == 1:
            return self._one(statement, values[0])
        compiled = self._statements.compiled(statement, values[0])
        if compiled.expanded:
            return [self._one(statement, one) for one in values][-1]
        if compiled.returns and compiled.is_of_columns:
            return self._many_returning(compiled, values)
        cursor = self.cursor()
        self.executed += 1
        cursor.executemany(compiled.sql, [arguments_of(compiled, one) for one in values])
        return CursorRows(cursor, ())

    def prefetch(self, statement: Any, values: dict[str, Any]) -> Any:
        return self.execute(statement, values)

    def _add(self, statement: Any, given: RowsOf) -> CursorRows:
        compiled = self._statements.for_columns(statement, given.columns)
        rows = converted(compiled, given.rows)
        cursor = self.cursor()
        self.executed += 1
        if len(rows) == 1:
            cursor.execute(compiled.sql, rows[0])
        elif len(rows) <= ROWS_SPELLED_MAX:
            cursor.execute(self._statements.for_rows(compiled, len(rows)), list(chain.from_iterable(rows)))
        else:
            cursor.executemany(compiled.sql, rows)
        return CursorRows(cursor, ())

    def _many_returning(self, compiled: CompiledStatement, values: Sequence[Values]) -> CursorRows:
        """The rows that inserts return, in any order."""
        found: list[tuple[Any, ...]] = []
        for first in range(0, len(values), ROWS_A_STATEMENT):
            part = values[first : first + ROWS_A_STATEMENT]
            cursor = self.cursor()
            self.executed += 1
            arguments = [value for one in part for value in arguments_of(compiled, one)]
            cursor.execute(self._statements.for_rows(compiled, len(part)), arguments)
            found += CursorRows(cursor, compiled.results)
        return CursorRows(found, ())

    def _one(self, statement: Any, values: Values) -> Any:
        compiled = self._statements.compiled(statement, values)
        if compiled.expanded:
            return self._with_lists(compiled, values)
        is_plain = not (compiled.constants or compiled.converts)
        cursor = self.cursor()
        self.executed += 1
        cursor.execute(compiled.sql, compiled.take(values) if is_plain else arguments_of(compiled, values))
        return CursorRows(cursor, compiled.results)

    def _with_lists(self, compiled: CompiledStatement, values: Values) -> Any:
        arguments = list(arguments_of(compiled, values))
        counts: list[int] = []
        # From the last on, so that the places of those before it stay.
        for place in compiled.lists:
            listed = list(arguments[place])
            count = 1 << (len(listed) - 1).bit_length() if listed else 0
            if count > len(listed):
                listed += listed[-1:] * (count - len(listed))
            arguments[place : place + 1] = listed
            counts.append(count)
        counts.reverse()
        cursor = self.cursor()
        self.executed += 1
        cursor.execute(self._statements.expand_lists(compiled, tuple(counts)), arguments)
        return CursorRows(cursor, compiled.results)


def converted(compiled: CompiledStatement, rows: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
    """Rows of parameters by position, converted."""
    if not compiled.converts:
        return rows
    if len(rows) == 1:
        row = list(rows[0])
        for place, convert in compiled.converts:
            row[place] = convert(row[place])
        return (row,)
    columns = list(zip(*rows, strict=True))
    for place, convert in compiled.converts:
        columns[place] = tuple(map(convert, columns[place]))
    return list(zip(*columns, strict=True))


def values_getter(names: tuple[str, ...]) -> Callable[[Values], Sequence[Any]]:
    """As `itemgetter`, but a single name gives a tuple too."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda values: [values[name] for name in names]


def arguments_of(compiled: CompiledStatement, values: Values) -> Sequence[Any]:
    """The parameters by position, converted; those of a list stay one."""
    if compiled.constants:
        values = {**compiled.constants, **values}
    taken = compiled.take(values)
    if not compiled.converts:
        return taken
    arguments = list(taken)
    for place, convert in compiled.converts:
        if compiled.names[place] in compiled.expanded:
            arguments[place] = [convert(item) for item in arguments[place]]
        else:
            arguments[place] = convert(arguments[place])
    return arguments

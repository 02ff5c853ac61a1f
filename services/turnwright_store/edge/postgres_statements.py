"""Statement forms for PostgreSQL: the rows of an INSERT are one array per column, an IN list is one array.

So a statement has one text for any number of rows and values: it is prepared and planned once per connection, and many
rows cost the server little more than their storage. Source: architecture 12.2; docs/adr/0006, 0007.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Dialect, Insert, Update

from turnwright_store.edge.compiling import compile_for
from turnwright_store.edge.postgres_pipe import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    FLOAT,
    TEXT,
    Array,
    PipelineResult,
    StatementPipeline,
)
from turnwright_store.edge.statements import (
    ROWS_A_STATEMENT,
    CompiledStatement,
    CursorRows,
    DirectConnection,
    Statements,
    Values,
    arguments_of,
    converted,
    values_getter,
)
from turnwright_store.ports import POSTGRESQL, RowsOf

_IN: Final = re.compile(r"(NOT )?IN \((__\[POSTCOMPILE_\w+\])\)")
_MARK: Final = re.compile(r"__\[POSTCOMPILE_\w+\]|%s|%%")
_TYPED_MARK: Final = re.compile(r'%s(?:::(\w+)(?: COLLATE "C")?)?')
_ROW: Final = re.compile(r" VALUES \(.*?\)(?= RETURNING | ON CONFLICT |$)", re.DOTALL)

PATHS: Final = "paths"
"""Name of list parameters with paths, the second column of an index on scope and path."""

_EACH: Final = "SELECT found.* FROM unnest(%s::text[]) AS given(path) CROSS JOIN LATERAL ({each} OFFSET 0) AS found"

_WHOLE: Final = re.compile(r"ORDER BY|LIMIT|GROUP BY|count\(")
"""Clauses that make a statement depend on all its rows together."""

_SQL: Final = {BIGINT: "bigint", TEXT: "text", BYTEA: "bytea", BOOLEAN: "boolean", FLOAT: "float8"}
_KINDS: Final = {sql.upper(): kind for kind, sql in _SQL.items()} | {"FLOAT": FLOAT}


class BulkStatement(Struct, frozen=True):
    """A statement for many rows at once."""

    sql: str
    kinds: tuple[int, ...]
    """Types of its parameters, each of which is an array."""


class PostgresStatements(Statements):
    """The compiled statements for PostgreSQL."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(self._compile_numbered, lambda _digest: None)
        self._dialect = dialect
        self._many: dict[int, BulkStatement | None] = {}

    def _compile_numbered(self, statement: Any, values: Values) -> CompiledStatement:
        compiled = compile_for(self._dialect, statement, values)
        numbered = self._numbered(compiled)
        self._many[id(numbered)] = self._for_many(statement, compiled)
        return numbered

    def _numbered(self, compiled: CompiledStatement) -> CompiledStatement:
        if PATHS in compiled.expanded and not _WHOLE.search(compiled.sql):
            compiled = _for_each_path(compiled)
        return replace(compiled, sql=_numbered(_IN.sub(lambda found: _any(*found.groups()), compiled.sql)))

    def for_many(self, compiled: CompiledStatement) -> BulkStatement | None:
        """The statement for many rows at once; None if it must be sent for each."""
        return self._many.get(id(compiled))

    def _for_many(self, statement: Any, compiled: CompiledStatement) -> BulkStatement | None:
        if compiled.constants or compiled.expanded or not compiled.names:
            return None
        if isinstance(statement, Insert):
            return self._insert_many(statement, compiled) if _ROW.search(compiled.sql) else None
        return _update_many(compiled) if isinstance(statement, Update) else None

    def _insert_many(self, statement: Insert, compiled: CompiledStatement) -> BulkStatement:
        columns = [statement.table.c[name].type.compile(dialect=self._dialect) for name in compiled.names]
        kinds = tuple(_KINDS[column.partition(" ")[0]] for column in columns)
        arrays = ", ".join(f"%s::{_SQL[kind]}[]" for kind in kinds)
        rows = f" SELECT * FROM unnest({arrays})"  # noqa: S608 - made of constants
        return BulkStatement(_numbered(_ROW.sub(rows, compiled.sql)), kinds)


def _update_many(compiled: CompiledStatement) -> BulkStatement | None:
    """An UPDATE of one row each, by ids; a row given twice is updated once."""
    marks = _TYPED_MARK.findall(compiled.sql)
    if set(marks) != {"BIGINT"} or compiled.returns:
        return None
    places = count()
    changed = _TYPED_MARK.sub(lambda _: f"given.c{next(places)}", compiled.sql)
    names = ", ".join(f"c{index}" for index in range(len(marks)))
    arrays = ", ".join(["%s::bigint[]"] * len(marks))
    given = f" FROM unnest({arrays}) AS given({names}) WHERE "
    return BulkStatement(_numbered(changed.replace(" WHERE ", given, 1)), (BIGINT,) * len(marks))


def _for_each_path(compiled: CompiledStatement) -> CompiledStatement:
    """The statement as a join with its list of paths.

    With a single condition a planner without statistics for the run may choose the wrong index: it would read all rows
    of the run and filter by path.
    """
    each = compiled.sql.replace(f"IN (__[POSTCOMPILE_{PATHS}])", "= given.path")
    places = [place for place, name in enumerate(compiled.names) if name != PATHS]
    names = (PATHS, *(compiled.names[place] for place in places))
    moved = {place: new for new, place in enumerate(places, 1)}
    converts = tuple((moved[place], convert) for place, convert in compiled.converts if place in moved)
    return replace(compiled, sql=_EACH.format(each=each), names=names, take=values_getter(names), converts=converts)


def _any(without: str | None, mark: str) -> str:
    return f"<> ALL ({mark})" if without else f"= ANY ({mark})"


def _numbered(sql: str) -> str:
    number = 0

    def name(found: re.Match[str]) -> str:
        nonlocal number
        if found[0] == "%%":
            return "%"
        number += 1
        return f"${number}"

    return _MARK.sub(name, sql)


class PostgresConnection(DirectConnection):
    """Replaces a SQLAlchemy connection for executing statements, which go through the pipeline."""

    dialect = POSTGRESQL
    is_remote = True

    def __init__(self, statements: PostgresStatements, pipe: StatementPipeline) -> None:
        super().__init__(statements, lambda: None)
        self._texts = statements
        self._pipe = pipe

    def execute(self, statement: Any, values: dict[str, Any] | Sequence[Values] | None = None) -> Any:
        if isinstance(values, RowsOf):
            return self._add(statement, values)
        given = [values] if isinstance(values, dict) else [{}] if values is None else values
        compiled = self._texts.compiled(statement, given[0])
        many = self._texts.for_many(compiled) if len(given) > 1 else None
        if many:
            return self._in_arrays(many, compiled, given)
        answers = [self._send(compiled, one) for one in given]
        return CursorRows(answers[-1], compiled.results)

    def _add(self, statement: Any, given: RowsOf) -> CursorRows:
        compiled = self._texts.for_columns(statement, given.columns)
        rows = converted(compiled, given.rows)
        if len(rows) == 1:
            self.executed += 1
            return CursorRows(self._pipe.send(compiled.sql, rows[0]), ())
        many = self._texts.for_many(compiled)
        assert many, "rows of columns are inserted"
        for first in range(0, len(rows), ROWS_A_STATEMENT):
            self.executed += 1
            columns = zip(*rows[first : first + ROWS_A_STATEMENT], strict=True)
            self._pipe.send(many.sql, [Array(kind, column) for kind, column in zip(many.kinds, columns, strict=True)])
        return CursorRows((), ())

    def prefetch(self, statement: Any, values: dict[str, Any]) -> Any:
        """Send a query without waiting for its rows; an error is raised at the next wait."""
        compiled = self._texts.compiled(statement, values)
        return CursorRows(self._send(compiled, values, waits=False), compiled.results)

    def _send(self, compiled: CompiledStatement, values: Values, *, waits: bool = True) -> PipelineResult:
        self.executed += 1
        arguments = arguments_of(compiled, values)
        if compiled.expanded:
            pairs = zip(compiled.names, arguments, strict=True)
            arguments = [list(dict.fromkeys(value)) if name in compiled.expanded else value for name, value in pairs]
        # A statement with rows is waited for, so that its error is raised at once.
        ask = self._pipe.query if waits and compiled.returns else self._pipe.send
        return ask(compiled.sql, arguments)

    def _in_arrays(self, many: BulkStatement, compiled: CompiledStatement, values: Sequence[Values]) -> CursorRows:
        found: list[tuple[Any, ...]] = []
        for first in range(0, len(values), ROWS_A_STATEMENT):
            self.executed += 1
            rows = [arguments_of(compiled, one) for one in values[first : first + ROWS_A_STATEMENT]]
            columns = zip(*rows, strict=True)
            arrays = [Array(kind, column) for kind, column in zip(many.kinds, columns, strict=True)]
            if compiled.returns:
                found += CursorRows(self._pipe.query(many.sql, arrays), compiled.results)
            else:
                self._pipe.send(many.sql, arrays)
        return CursorRows(found, ())

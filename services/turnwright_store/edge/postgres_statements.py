"""Statement forms for PostgreSQL: the rows of an INSERT are one array per column, an IN list is one array.

So a statement has one text for any number of rows and values: it is prepared and planned once per connection, and many
rows cost the server little more than their storage. Source: architecture 12.2; docs/adr/0006, 0007.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain, count
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Dialect, Insert, Update
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from turnwright_store.edge.compiling import compile_for
from turnwright_store.edge.postgres_pipe import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    FLOAT,
    TEXT,
    PipelineResult,
    StatementPipeline,
    array,
)
from turnwright_store.edge.statements import NO_VALUES, CompiledStatement, Values
from turnwright_store.ports import POSTGRESQL, Rows
from turnwright_store.sql.entries import batched
from turnwright_store.sql.lazy import built

ROWS_A_STATEMENT: Final = 1000
"""Rows in one statement: each column of them is an array."""

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


_DIALECT: Final[Dialect] = PGDialect_psycopg(paramstyle="format")  # type: ignore[no-untyped-call]


class BulkStatement(Struct, frozen=True):
    """A statement for many rows at once."""

    sql: str
    kinds: tuple[int, ...]
    """Types of its parameters, each of which is an array."""


class PostgresStatement(Struct, frozen=True):
    """A statement for one row, and for many at once; None if it must be sent for each."""

    one: CompiledStatement
    many: BulkStatement | None


# Statements are compared by identity, and stay in memory.
@cache
def compiled_for_postgres(statement: Any) -> PostgresStatement:
    written = built(statement)
    compiled = compile_for(_DIALECT, written)
    return PostgresStatement(_with_arrays(compiled).prepare(POSTGRESQL), _for_many(written, compiled))


def _for_many(statement: Any, compiled: CompiledStatement) -> BulkStatement | None:
    if compiled.constants or compiled.lists or not compiled.names:
        return None
    if isinstance(statement, Insert):
        return _insert_many(statement, compiled) if _ROW.search(compiled.sql) else None
    return _update_many(compiled) if isinstance(statement, Update) else None


def _insert_many(statement: Insert, compiled: CompiledStatement) -> BulkStatement:
    columns = [statement.table.c[name].type.compile(dialect=_DIALECT) for name in compiled.names]
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


def _with_arrays(compiled: CompiledStatement) -> CompiledStatement:
    """The statement with each list as one array, and numbered parameters."""
    if any(compiled.names[place] == PATHS for place in compiled.lists) and not _WHOLE.search(compiled.sql):
        compiled = _for_each_path(compiled)
    return replace(compiled, sql=_numbered(_IN.sub(lambda found: _any(*found.groups()), compiled.sql)))


def _for_each_path(compiled: CompiledStatement) -> CompiledStatement:
    """The statement as a join with its list of paths.

    With a single condition a planner without statistics for the run may choose the wrong index: it would read all rows
    of the run and filter by path.
    """
    each = compiled.sql.replace(f"IN (__[POSTCOMPILE_{PATHS}])", "= given.path")
    paths, *again = [place for place, name in enumerate(compiled.names) if name == PATHS]
    # The parts of a UNION name the list each; the join has it once.
    order = (paths, *(place for place in range(len(compiled.names)) if place not in (paths, *again)))
    return replace(
        compiled,
        sql=_EACH.format(each=each),
        names=tuple(compiled.names[place] for place in order),
        writes=tuple((order.index(place), name) for place, name in compiled.writes),
        lists=tuple(order.index(place) for place in compiled.lists if place not in again),
    )


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


class PostgresConnection:
    """Replaces a SQLAlchemy connection for executing statements, which go through the pipeline."""

    dialect = POSTGRESQL

    def __init__(self, pipe: StatementPipeline) -> None:
        self.executed = 0
        """Number of statements."""
        self._pipe = pipe

    def execute(self, statement: Any, values: Values = NO_VALUES) -> Rows:
        compiled = compiled_for_postgres(statement).one
        return Rows(self._send(compiled, compiled.arguments(values), compiled.sql), compiled.readers)

    def execute_many(self, statement: Any, values: Sequence[Values]) -> None:
        compiled = compiled_for_postgres(statement)
        self._send_rows(compiled, map(compiled.one.arguments, values))

    def insert(self, into: tuple[Any, tuple[str, ...]], rows: Sequence[Sequence[Any]]) -> Rows:
        statement, columns = into
        compiled = compiled_for_postgres(statement)
        assert compiled.one.names == columns, f"the order of the table is {compiled.one.names}"
        return Rows(self._send_rows(compiled, map(compiled.one.written, rows)), compiled.one.readers)

    def _send_rows(self, compiled: PostgresStatement, rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """Send a statement for each of these rows; returns the rows of the answers."""
        one, many = compiled.one, compiled.many
        answers = []
        for part in batched(rows, ROWS_A_STATEMENT if many else 1):
            if many and len(part) > 1:
                columns = zip(many.kinds, zip(*part, strict=True), strict=True)
                answers.append(self._send(one, [array(kind, column) for kind, column in columns], many.sql))
            else:
                answers.append(self._send(one, part[0], one.sql))
        return list(chain.from_iterable(answers)) if one.returns else []

    def _send(self, compiled: CompiledStatement, arguments: Sequence[Any], sql: str) -> PipelineResult:
        self.executed += 1
        if compiled.lists:
            arguments = list(arguments)
            for place in compiled.lists:
                arguments[place] = list(dict.fromkeys(arguments[place]))
        # A statement with rows is waited for, so that its error is raised at once.
        return (self._pipe.query if compiled.returns else self._pipe.send)(sql, arguments)

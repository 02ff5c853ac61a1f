"""Compiles statements with SQLAlchemy."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Dialect, TextClause
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.sql.compiler import SQLCompiler

from turnwright_store.edge.statements import CompiledStatement
from turnwright_store.sql.compression import READERS, WRITERS

SQLITE_DIALECT: Final = SQLiteDialect_pysqlite()


def compile_for(dialect: Dialect, statement: Any) -> CompiledStatement:
    """A statement with the names of the types of its parameters and columns."""
    # Compiled as for many rows: for a single one, Core would add RETURNING for its key.
    compiled: SQLCompiler = statement.compile(dialect=dialect, for_executemany=True)
    names = tuple(compiled.positiontup or ())
    binds = [compiled.binds[name] for name in names]
    # Not `exported_columns`: what is made of an UPDATE by `returning` has those of the UPDATE, none.
    columns = compiled._result_columns  # noqa: SLF001 - as SQLAlchemy's own results
    writes = [(place, type(bind.type).__name__) for place, bind in enumerate(binds)]
    reads = [(place, type(column.type).__name__) for place, column in enumerate(columns)]
    return CompiledStatement(
        sql=str(compiled),
        names=names,
        constants={name: bind.effective_value for name, bind in zip(names, binds, strict=True) if not bind.required},
        writes=tuple((place, name) for place, name in writes if name in WRITERS[dialect.name]),
        lists=tuple(place for place, bind in enumerate(binds) if bind.expanding)[::-1],
        reads=tuple((place, name) for place, name in reads if name in READERS),
        returns=isinstance(statement, TextClause) or bool(columns),
    )

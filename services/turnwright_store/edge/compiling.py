"""Compiles statements with SQLAlchemy."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Dialect, Insert, TextClause
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.sql.compiler import SQLCompiler

from turnwright_store.edge.statements import CompiledStatement, Values, values_getter
from turnwright_store.sql.compression import READERS

_SQLITE: Final = SQLiteDialect_pysqlite()


def compile_for_sqlite(statement: Any, values: Values) -> CompiledStatement:
    return compile_for(_SQLITE, statement, values)


def compile_for(dialect: Dialect, statement: Any, values: Values) -> CompiledStatement:
    """A statement as the driver takes it, an insert for the given columns."""
    keys = list(values) if isinstance(statement, Insert) else None
    # Compiled as for many rows: for a single one, Core would add RETURNING for its key.
    compiled: SQLCompiler = statement.compile(dialect=dialect, column_keys=keys, for_executemany=True)
    names = tuple(compiled.positiontup or ())
    binds = [compiled.binds[name] for name in names]
    writes = [bind.type.dialect_impl(dialect).bind_processor(dialect) for bind in binds]
    is_text = isinstance(statement, TextClause)
    # Not `exported_columns`: what is made of an UPDATE by `returning` has those of the UPDATE, none.
    columns = compiled._result_columns  # noqa: SLF001 - as SQLAlchemy's own results
    reads = [READERS.get(type(column.type).__name__) for column in columns]
    return CompiledStatement(
        sql=str(compiled),
        names=names,
        take=values_getter(names),
        constants={name: bind.effective_value for name, bind in zip(names, binds, strict=True) if not bind.required},
        converts=tuple((index, convert) for index, convert in enumerate(writes) if convert is not None),
        expanded=frozenset(name for name, bind in zip(names, binds, strict=True) if bind.expanding),
        results=tuple((index, convert) for index, convert in enumerate(reads) if convert is not None),
        returns=is_text or bool(reads),
        is_of_columns=keys is not None,
    )

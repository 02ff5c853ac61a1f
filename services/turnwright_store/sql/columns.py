"""Common parts of the table definitions: column types, defaults, index names.

Constraint names follow one convention, so that migrations of both databases find them.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    MetaData,
    literal_column,
    text,
)

from turnwright_store.ports import SQLITE
from turnwright_store.sql.dialect import CompressedText, Key, Path

NAMING: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}

metadata: Final = MetaData(naming_convention=NAMING)
"""Of all tables; those who need every one of them import it from sql.tables."""


def primary_key() -> Column[int]:
    return Column("id", Key, primary_key=True)


def foreign_key(name: str, to: str) -> Column[int]:
    return Column(name, Key, ForeignKey(to), nullable=False)


def foreign_key_on_sqlite(name: str, to: str) -> tuple[Column[int], ForeignKeyConstraint]:
    """A foreign key of a large table: not on PostgreSQL, which checks each row with a statement of its own."""
    return Column(name, Key, nullable=False), ForeignKeyConstraint([name], [to]).ddl_if(dialect=SQLITE)


def number_column(name: str, default: str | None = "0") -> Column[int]:
    """A number that is always there; times are milliseconds since 1970."""
    return Column(name, BigInteger, nullable=False, server_default=None if default is None else text(default))


def text_column(name: str, default: str | None = "") -> Column[str]:
    """A short text of one line: names, paths, JSON."""
    return Column(name, Path, nullable=False, server_default=default)


def compressed_column(name: str, default: str | None = None) -> Column[str]:
    return Column(name, CompressedText, nullable=False, server_default=default)


def not_zero(column: ColumnElement[int]) -> ColumnElement[bool]:
    """Condition for partial indexes on rows with a non-zero number, and for their queries.

    Not `column > 0`: SQLite also compares that with `column > ?` and looks at the parameter, and a statement with such
    a bound is then prepared again at every call.
    """
    return column != literal_column("0")


def partial_index(name: str, *columns: Column[Any], where: ColumnElement[bool], unique: bool = False) -> Index:
    """A partial index.

    `create_tables` makes it so on PostgreSQL, too. Declaring it here for both would import PostgreSQL's dialect in
    every store.
    """
    return Index(name, *columns, unique=unique, sqlite_where=where)

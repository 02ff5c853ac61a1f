"""Differences between the databases: column types, and checks that only one of them supports.

Everything else in this package is portable SQL. Triggers are in `create_tables`, which knows its dialect. Source:
docs/adr/0006.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, CheckConstraint, Dialect, FunctionElement, Integer, LargeBinary, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType

from turnwright_store.ports import POSTGRESQL, SQLITE
from turnwright_store.sql.compression import READERS, WRITERS

Key: Final = BigInteger().with_variant(Integer, SQLITE)
"""A surrogate key: on SQLite only INTEGER is an alias of the row id."""

Path: Final = Text().with_variant(Text(collation="C"), POSTGRESQL)
"""A text that is compared and sorted by code points on every database."""


class _Stored(TypeDecorator[Any]):
    """A value that is not stored as it is: see READERS and WRITERS."""

    impl: Any = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else WRITERS[dialect.name][type(self).__name__](value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002 - stored values say what they are
        return None if value is None else READERS[type(self).__name__](value)


class CompressedText(_Stored):
    """Text of any code points, including NUL, compressed if that pays.

    PostgreSQL stores it as bytes, since its text cannot contain NUL; SQLite as text, or as a blob if it is compressed.
    """

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Bytes on PostgreSQL; SQLite accepts both."""
        return dialect.type_descriptor(LargeBinary() if dialect.name == POSTGRESQL else Text())


class Serialized(_Stored):
    """A serialized protobuf message, compressed if that pays; NULL if there is none.

    It cannot begin like a compressed value, since its first field is a text.
    """

    cache_ok = True


class Digest(_Stored):
    """A hexadecimal digest, stored as bytes."""

    cache_ok = True


class DigestOrText(_Stored):
    """A SHA-256 digest; or the text itself if it is shorter. Only read."""

    cache_ok = True


class Packed(UserDefinedType[Any]):
    """A column value in stored form, without conversion."""

    cache_ok = True

    def get_col_spec(self, **_kw: Any) -> str:
        """Unused: no column has this type."""
        return "BLOB"


class DatabaseNow(FunctionElement[int]):
    """The database's clock in a statement, in milliseconds since 1970: for readers, which have no transaction time."""

    type = BigInteger()
    inherit_cache = True


@compiles(DatabaseNow, SQLITE)
def _now_on_sqlite(*_: Any, **__: Any) -> str:
    return "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"


@compiles(DatabaseNow, POSTGRESQL)
def _now_on_postgresql(*_: Any, **__: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"


def json_object(column: str) -> tuple[CheckConstraint, CheckConstraint]:
    """Check that the column contains a JSON object (RU051)."""
    # json_valid(NULL) is 0 before SQLite 3.45 and NULL after it.
    on_sqlite = CheckConstraint(f"{column} IS NULL OR json_valid({column})", name=f"{column}_json")
    on_postgresql = CheckConstraint(f"{column} IS NULL OR {column}::json IS NOT NULL", name=f"{column}_json")
    return on_sqlite.ddl_if(dialect=SQLITE), on_postgresql.ddl_if(dialect=POSTGRESQL)

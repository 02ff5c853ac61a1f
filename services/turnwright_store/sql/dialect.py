"""Differences between the databases: column types, and checks that only one of them supports.

Everything else in this package is portable SQL. Triggers are in the migrations, which know their dialect. Source:
docs/adr/0006.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from sqlalchemy import BigInteger, CheckConstraint, Dialect, Integer, LargeBinary, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from turnwright_store.sql.packing import COMPRESSED_FROM_BYTES, is_compressed, packed, unpacked

POSTGRESQL: Final = "postgresql"
SQLITE: Final = "sqlite"

Key: Final = BigInteger().with_variant(Integer, SQLITE)
"""A surrogate key: on SQLite only INTEGER is an alias of the row id."""

Path: Final = Text().with_variant(Text(collation="C"), POSTGRESQL)
"""A text that is compared and sorted by code points on every database."""


class CompressedText(TypeDecorator[str]):
    """Text of any code points, including NUL, compressed if that pays.

    PostgreSQL stores it as bytes, since its text cannot contain NUL; SQLite as text, or as a blob if it is compressed.
    """

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Bytes on PostgreSQL; SQLite accepts both."""
        return dialect.type_descriptor(LargeBinary() if dialect.name == POSTGRESQL else Text())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        if dialect.name == POSTGRESQL:
            return packed(value.encode())
        stored = packed(value.encode()) if len(value) >= COMPRESSED_FROM_BYTES else b""
        return stored if is_compressed(stored) else value

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002 - stored values say what they are
        if value is None or isinstance(value, str):
            return value
        return unpacked(bytes(value)).decode()


class Serialized(TypeDecorator[bytes]):
    """A serialized protobuf message, compressed if that pays; NULL if there is none.

    It cannot begin like a compressed value, since its first field is a text.
    """

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002
        return packed(value) if value else None

    def process_result_value(self, value: Any, dialect: Dialect) -> bytes | None:  # noqa: ARG002
        return None if value is None else unpacked(bytes(value))


class Digest(TypeDecorator[str]):
    """A hexadecimal digest, stored as bytes."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002
        return None if value is None else bytes.fromhex(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else bytes(value).hex()


DIGEST_BYTES: Final = hashlib.sha256().digest_size


class DigestOrText(Digest):
    """A SHA-256 digest; or the text itself if it is shorter."""

    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002
        if value is None:
            return None
        stored = value.encode() if isinstance(value, str) else bytes(value)
        return (stored if len(stored) == DIGEST_BYTES else hashlib.sha256(stored).digest()).hex()


def json_object(column: str) -> tuple[CheckConstraint, CheckConstraint]:
    """Check that the column contains a JSON object (RU051)."""
    # json_valid(NULL) is 0 before SQLite 3.45 and NULL after it.
    on_sqlite = CheckConstraint(f"{column} IS NULL OR json_valid({column})", name=f"{column}_json")
    on_postgresql = CheckConstraint(f"{column} IS NULL OR {column}::json IS NOT NULL", name=f"{column}_json")
    return on_sqlite.ddl_if(dialect=SQLITE), on_postgresql.ddl_if(dialect=POSTGRESQL)

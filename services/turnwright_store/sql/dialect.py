"""What differs between databases: types of columns, and checks that only one of them can say.

Everything else in this package is portable SQL. Triggers stand in the migrations, which know their dialect.
Source: docs/adr/0006.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import zstandard
from sqlalchemy import BigInteger, CheckConstraint, Dialect, Integer, LargeBinary, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

POSTGRESQL: Final = "postgresql"
SQLITE: Final = "sqlite"

Key: Final = BigInteger().with_variant(Integer, SQLITE)
"""A surrogate key: only INTEGER is the row's own number on SQLite."""

Path: Final = Text().with_variant(Text(collation="C"), POSTGRESQL)
"""A text that is compared and sorted by its code points on every database."""

COMPRESSED_FROM_BYTES: Final = 256
"""Length from which a text is compressed; below, the frame eats the gain."""

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
"""Begins every compressed text and no valid UTF-8, so that a stored value says by itself what it is."""


class _Codecs(threading.local):
    """Contexts of zstandard serve one thread at a time."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=1, write_checksum=False)
        self.decompressor = zstandard.ZstdDecompressor()


_codecs: Final = _Codecs()


class Prose(TypeDecorator[str]):
    """Text of any code points, NUL among them, compressed where that pays.

    PostgreSQL keeps it as bytes, since its text cannot hold NUL; SQLite as text, or as a blob where it is compressed.
    """

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Bytes on PostgreSQL; SQLite takes either."""
        return dialect.type_descriptor(LargeBinary() if dialect.name == POSTGRESQL else Text())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        """What is stored of a text."""
        if value is None:
            return None
        if len(value) < COMPRESSED_FROM_BYTES:
            return value.encode() if dialect.name == POSTGRESQL else value
        data = value.encode()
        packed = _codecs.compressor.compress(data)
        if len(packed) < len(data):
            return packed
        return data if dialect.name == POSTGRESQL else value

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002 - stored values say what they are
        """The text of what is stored."""
        if value is None or isinstance(value, str):
            return value
        data = bytes(value)
        return (_codecs.decompressor.decompress(data) if data.startswith(_ZSTD_MAGIC) else data).decode()


class Digest(TypeDecorator[str]):
    """A digest in hexadecimal, stored as its bytes; the empty text stays empty."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002
        """What is stored of a digest."""
        return None if value is None else bytes.fromhex(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002
        """The digest of what is stored; the first schema kept it as text."""
        return value if value is None or isinstance(value, str) else bytes(value).hex()


def json_object(column: str) -> tuple[CheckConstraint, CheckConstraint]:
    """The column holds JSON text (RU051)."""
    # json_valid(NULL) is 0 before SQLite 3.45 and NULL after it.
    on_sqlite = CheckConstraint(f"{column} IS NULL OR json_valid({column})", name=f"{column}_json")
    on_postgresql = CheckConstraint(f"{column} IS NULL OR {column}::json IS NOT NULL", name=f"{column}_json")
    return on_sqlite.ddl_if(dialect=SQLITE), on_postgresql.ddl_if(dialect=POSTGRESQL)

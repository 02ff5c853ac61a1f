"""Common parts of backup and restore: opening files that no store serves, copying and counting rows.

A backup is a SQLite file with the store's tables at the head of the schema, whichever database it came from. The
full-text index is left out: it is rebuilt from what is restored.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy
from msgspec import Struct
from sqlalchemy import Connection, NullPool, StaticPool, Table, delete, func, insert, make_url, select
from sqlalchemy.exc import DBAPIError

from turnwright_store.config import POSTGRESQL_SCHEMES
from turnwright_store.edge.schema import REVISIONS, UNRELEASED, current_revision, unreleased_advice
from turnwright_store.sql.search import FTS5_EMPTY
from turnwright_store.sql.tables import (
    blocks,
    chunks,
    executors,
    loops,
    meta,
    metadata,
    packets,
    search_marks,
    versions,
)

ReportProgress = Callable[[str], None]
"""Receives frequent progress messages."""

MANIFEST: Final = "backup"
"""Key of a backup's row counts in `meta`."""

_ROWS_AT_ONCE: Final = 500
_HEAVY_ROWS_AT_ONCE: Final = 16
"""A body has up to 16 MiB: maximum number in memory at once, twice."""

_HEAVY: Final = frozenset({versions.name, chunks.name, blocks.name, packets.name, loops.name})
_COPIED: Final = tuple(table for table in metadata.sorted_tables if table is not search_marks)
_COUNTED: Final = tuple(table for table in _COPIED if table not in (meta, executors))
"""Tables in the manifest; rows of the others belong to a running store."""

_PAGES_FREE_SHARE_MAX: Final = 0.1
"""Share of free pages from which a file is compacted."""


class BackupError(RuntimeError):
    """A backup that cannot be made or restored; nothing was changed. The text says why, and what to do."""


class Report(Struct, frozen=True):
    """What was copied."""

    file: str
    """Where it is: a file, or the URL of a database without its password."""
    size_bytes: int
    """Size of the backup file."""
    incarnation: str
    """Identity of the history in it."""
    schema: str
    """Revision of its schema."""
    tables: Mapping[str, int]
    """Rows by table."""


def is_url(database: str) -> bool:
    """Whether a database is named by the URL of a server, and not by a file."""
    scheme, separator, _ = database.partition("://")
    return bool(separator) and scheme in POSTGRESQL_SCHEMES


def without_password(database: str) -> str:
    """The name of a database for display: a URL without its password."""
    return make_url(database).render_as_string(hide_password=True) if is_url(database) else database


def snapshot_engine(url: str) -> sqlalchemy.Engine:
    """An engine for a PostgreSQL database whose transactions each see one moment."""
    named = make_url(url).set(drivername="postgresql+psycopg")
    # As stores connect: a database of another encoding (SQL_ASCII, say) would answer in bytes.
    more = {"client_encoding": "utf8"}
    return sqlalchemy.create_engine(named, poolclass=NullPool, isolation_level="REPEATABLE READ", connect_args=more)


@contextmanager
def open_database_file(file: Path, *, read_only: bool = False) -> Iterator[tuple[sqlite3.Connection, Connection]]:
    """A connection to a file: read-only if a store may be serving it, else exclusive."""
    raw = sqlite3.connect(f"{file.resolve().as_uri()}?mode={'ro' if read_only else 'rwc'}", uri=True)
    try:
        raw.isolation_level = None
        if not read_only:
            # Ours is a scratch file: it is deleted if anything fails, and synced as a whole at the end.
            raw.execute("PRAGMA journal_mode = OFF").close()
            raw.execute("PRAGMA synchronous = OFF").close()
        engine = sqlalchemy.create_engine(
            "sqlite://", creator=lambda: raw, poolclass=StaticPool, isolation_level="AUTOCOMMIT"
        )
        with engine.connect() as core:
            yield raw, core
    finally:
        raw.close()


@contextmanager
def wrapping_database_errors(what: str) -> Iterator[None]:
    """Turns database errors into BackupError. Only their own messages: statements contain user data."""
    try:
        yield
    except DBAPIError as error:
        raise BackupError(f"{what}: {str(error.orig).strip()}") from None
    except sqlite3.Error as error:
        raise BackupError(f"{what}: {error}") from None


def copy_file(raw: sqlite3.Connection, to: Path, report: ReportProgress) -> None:
    """Write a consistent snapshot of a connection's database into an empty file."""
    page_size, pages = (raw.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count"))
    raw.set_progress_handler(lambda: _report_bytes(to, page_size * pages, report), 1_000_000)
    raw.execute("VACUUM INTO ?", (str(to),))
    raw.set_progress_handler(None, 0)


def _report_bytes(file: Path, total: int, report: ReportProgress) -> int:
    report(f"{file.stat().st_size / 1e6:,.0f} of at most {total / 1e6:,.0f} MB")
    return 0


def copy_rows(source: Connection, target: Connection, report: ReportProgress) -> None:
    """Replace all rows of a database by those of another one, a bounded number at a time."""
    for table in reversed(_COPIED):
        target.execute(delete(table))
    for table in _COPIED:
        at_once = _HEAVY_ROWS_AT_ONCE if table.name in _HEAVY else _ROWS_AT_ONCE
        with source.execute(select(table).execution_options(yield_per=at_once)) as rows:
            count = 0
            for part in rows.mappings().partitions():
                target.execute(insert(table), [dict(row) for row in part])
                count += len(part)
                report(f"{table.name}: {count:,} rows")


def count_rows(core: Connection) -> dict[str, int]:
    return {table.name: _count(core, table) for table in _COUNTED}


def _count(core: Connection, table: Table) -> int:
    return int(core.execute(select(func.count()).select_from(table)).scalar_one())


def clear_search_index(raw: sqlite3.Connection) -> None:
    """Clear the full-text index, so that it is rebuilt; then reclaim the space."""
    for statement in FTS5_EMPTY:
        raw.execute(statement)
    free, pages = (raw.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count"))
    if free > pages * _PAGES_FREE_SHARE_MAX:
        raw.execute("VACUUM")


def revision_of(core: Connection) -> str:
    """Schema revision of a database; empty if it has none."""
    raw: Any = core.connection.driver_connection
    return current_revision(raw, core.dialect.name)


def too_new_advice(revision: str) -> str:
    """Advice for a schema that this version does not know."""
    if revision in UNRELEASED:
        return f"{unreleased_advice(revision)}."
    return (
        f"It has the schema {revision}, and this version knows {REVISIONS[-1]} at most: use the version that wrote it."
    )

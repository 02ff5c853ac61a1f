"""Mapping of SQLite's error codes to our errors.

Source: SQLite, "Result and Error Codes"; for PostgreSQL see edge.sqlstates.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

from turnwright_core.errors import Reason, fault
from turnwright_kit.logs import get_logger

_PASSING: Final = {
    sqlite3.SQLITE_FULL: "its disk is full",
    sqlite3.SQLITE_IOERR: "its disk fails",
    sqlite3.SQLITE_BUSY: "something else has locked its file",
    sqlite3.SQLITE_CANTOPEN: "a file beside it cannot be opened",
    sqlite3.SQLITE_NOMEM: "there is no memory left",
    sqlite3.SQLITE_READONLY: "its file is read-only",
}
"""Transient errors that are no request's fault. Nothing is written then."""

_FOR_WANT_OF_SPACE: Final = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
SPACE_BYTES_MIN: Final = 64 * 1024
"""Free space below which a file cannot be created beside the database: SQLite's shared memory has 32 KiB."""

_log = get_logger("store.database")


class DatabaseUnusableError(OSError):
    """A file that the store cannot use."""


def to_fault(error: Exception, file: Path) -> Exception:
    """The error for the caller of a request; errors of the request itself are unchanged."""
    why = _PASSING.get(_code(error))
    if why is None:
        return error
    _log.error("database_failed", detail=str(driver_error(error)))
    if is_full(error, file):
        return fault(Reason.DATABASE_UNAVAILABLE, f"{_full(file)}; the run continues then.")
    return fault(Reason.DATABASE_UNAVAILABLE, f"The database cannot do it now ({why}): retry.")


def is_full(error: Exception, file: Path) -> bool:
    """Whether it failed for want of space, which a file beside the database reports as an error of its own."""
    if _code(error) != sqlite3.SQLITE_FULL and _code(error) not in _FOR_WANT_OF_SPACE:
        return False
    try:
        disk = os.statvfs(file.parent)
    except OSError:
        return False
    return _code(error) == sqlite3.SQLITE_FULL or disk.f_bavail * disk.f_frsize < SPACE_BYTES_MIN


def _full(file: Path) -> str:
    return f"The disk is full ({file.parent}). Free some space"


def unusable_error(file: Path, error: Exception) -> DatabaseUnusableError:
    """The error for a file that cannot be opened or migrated."""
    if is_full(error, file):
        return DatabaseUnusableError(f"{_full(file)}, and start again.")
    advice = (
        "name another file with --db, or restore a backup" if is_corruption(error) else "see to that, and start again"
    )
    return DatabaseUnusableError(f"{file} cannot be used as the database ({driver_error(error)}): {advice}")


def refuse_orphaned_wal(file: Path) -> None:
    """Raise DatabaseUnusableError for an empty or missing file next to a non-empty write-ahead log.

    SQLite would create a new database and remove the log, which may contain all that is left of the old one.
    """
    log = file.with_name(f"{file.name}-wal")
    if _size_bytes(log) and not _size_bytes(file):
        raise DatabaseUnusableError(
            f"{file} is empty or missing, but its log {log.name} is not: put the file back, or move the log away and "
            "restore a backup"
        )


def _size_bytes(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def is_corruption(error: BaseException) -> bool:
    """Whether an error means that the file is corrupted."""
    return _code(error) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def _code(error: BaseException) -> int:
    # The other bits are details.
    return int(getattr(driver_error(error), "sqlite_errorcode", 0)) & 0xFF


def driver_error(error: BaseException) -> BaseException:
    """The driver's error inside SQLAlchemy's."""
    return getattr(error, "orig", None) or error

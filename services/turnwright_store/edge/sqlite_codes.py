"""What SQLite says of a failure, by its codes: what a caller hears of it, and whoever starts the store.

Source: SQLite, "Result and Error Codes"; the same for PostgreSQL is in edge.sqlstates.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from sqlalchemy.exc import DBAPIError

from turnwright_core.errors import Reason, fault
from turnwright_core.kit.logs import get_logger

_PASSING: Final = {
    sqlite3.SQLITE_FULL: "its disk is full",
    sqlite3.SQLITE_IOERR: "its disk fails",
    sqlite3.SQLITE_BUSY: "something else has locked its file",
    sqlite3.SQLITE_CANTOPEN: "a file beside it cannot be opened",
    sqlite3.SQLITE_NOMEM: "there is no memory left",
    sqlite3.SQLITE_READONLY: "its file is read-only",
}
"""What is not the fault of a request, and may be over when it comes again. Nothing is written then."""

_log = get_logger("store.database")


class DatabaseUnusableError(OSError):
    """A file that the store cannot serve from."""


def to_fault(error: Exception) -> Exception:
    """What the caller of a request hears of what the database raised; what is the request's own stays what it is."""
    why = _PASSING.get(_code(error))
    if why is None:
        return error
    _log.error("database_failed", detail=str(_raised(error)))
    return fault(Reason.DATABASE_UNAVAILABLE, f"The database cannot do it now ({why}): retry.")


def unusable(file: Path, error: Exception) -> DatabaseUnusableError:
    """What is said of a file that cannot be opened or brought to the schema."""
    advice = "name another file with --db, or restore a backup" if is_damage(error) else "see to that, and start again"
    return DatabaseUnusableError(f"{file} cannot be used as the database ({_raised(error)}): {advice}")


def refuse_log_alone(file: Path) -> None:
    """Raise DatabaseUnusableError for a file that is empty or missing beside a log that is not.

    SQLite would begin a new database and remove the log, which may hold all that is left of the old one.
    """
    log = file.with_name(f"{file.name}-wal")
    if _size_bytes(log) and not _size_bytes(file):
        raise DatabaseUnusableError(
            f"{file} is empty or missing, but its log {log.name} is not: put the file back, or move the log away and "
            "restore a backup"
        )


def _size_bytes(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def is_damage(error: BaseException) -> bool:
    """Whether it says that a file is not what a database looks like."""
    return _code(error) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def _code(error: BaseException) -> int:
    # The other bits tell more of the same.
    return int(getattr(_raised(error), "sqlite_errorcode", 0)) & 0xFF


def _raised(error: BaseException) -> BaseException:
    """The driver's own error below SQLAlchemy's."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error

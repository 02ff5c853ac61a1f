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
}
"""What is not the fault of a request, and may be over when it comes again. Nothing is written then."""

_log = get_logger("store.database")


class DatabaseUnusableError(OSError):
    """A file that the store cannot serve from."""


def heard(error: Exception) -> Exception:
    """What the caller of a request hears of what the database raised; what is the request's own stays what it is."""
    raised = _raised(error)
    # The other bits tell more of the same.
    why = _PASSING.get(getattr(raised, "sqlite_errorcode", 0) & 0xFF)
    if why is None:
        return error
    _log.error("database failed", detail=str(raised))
    return fault(Reason.DATABASE_UNAVAILABLE, f"The database cannot do it now ({why}): call again.")


def unusable(file: Path, error: Exception) -> DatabaseUnusableError:
    """What is said of a file that cannot be opened or brought to the schema."""
    code = getattr(_raised(error), "sqlite_errorcode", 0) & 0xFF
    is_damaged = code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
    advice = "name another file with --db, or restore a backup" if is_damaged else "see to that, and start again"
    return DatabaseUnusableError(f"{file} cannot be used as the database ({_raised(error)}): {advice}")


def _raised(error: Exception) -> BaseException:
    """The driver's own error below SQLAlchemy's."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error

"""Mapping of PostgreSQL's error codes: what is retried, how, and the error for the caller.

Source: PostgreSQL 15, appendix A.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

import psycopg
from sqlalchemy.exc import DBAPIError

from turnwright_core.errors import Reason, fault


class RecoveryAction(Enum):
    """The remedy for a failure."""

    NONE = auto()
    """None: the statement is at fault."""
    AGAIN = auto()
    """Retry the transaction: it conflicted with another one."""
    CONNECT = auto()
    """Reconnect."""
    LATER = auto()
    """Wait: the server is overloaded, or waits for something."""


INDEXED_BYTES_MAX: Final = 2704
"""Maximum size of an index entry in bytes, after compression: a third of a page."""

_FIGURE: Final = re.compile(r"\d+")
_CURES: Final = {
    "40001": RecoveryAction.AGAIN,  # serialization_failure
    "40P01": RecoveryAction.AGAIN,  # deadlock_detected
    "25006": RecoveryAction.CONNECT,  # read_only_sql_transaction: the server is not the primary any more
    "25P03": RecoveryAction.CONNECT,  # idle_in_transaction_session_timeout
    "55P03": RecoveryAction.LATER,  # lock_not_available
    "57014": RecoveryAction.LATER,  # query_canceled, by statement_timeout
}
_CURES_BY_CLASS: Final = {
    "08": RecoveryAction.CONNECT,  # connection exception
    "57": RecoveryAction.CONNECT,  # operator intervention: shut down, crashed, starting
    "53": RecoveryAction.LATER,  # insufficient resources: disk, memory, connections
}


def driver_error(error: BaseException) -> BaseException:
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def recovery_of(error: BaseException, *, is_open: bool) -> RecoveryAction:
    """The remedy for an error. `is_open` says whether the connection is still open."""
    found = driver_error(error)
    if not isinstance(found, psycopg.Error):
        return RecoveryAction.NONE
    if not is_open:
        return RecoveryAction.CONNECT
    code = found.sqlstate or ""
    return _CURES.get(code) or _CURES_BY_CLASS.get(code[:2], RecoveryAction.NONE)


_FULL: Final = "The disk of the database is full. Free some space; the run continues then."


def to_fault(error: Exception, action: RecoveryAction) -> Exception:
    """The error for the caller after all retries; our own errors are unchanged."""
    if action is RecoveryAction.NONE:
        refused = _refused(driver_error(error))
        if refused is not None:
            refused.__cause__ = error
        return refused or error
    is_full = getattr(driver_error(error), "sqlstate", None) == psycopg.errors.DiskFull.sqlstate
    why = f"The database cannot do it now ({_title(error)}): retry."
    failure = fault(Reason.DATABASE_UNAVAILABLE, _FULL if is_full else why)
    failure.__cause__ = error
    return failure


def _refused(error: BaseException) -> Exception | None:
    """The error for a text that this database cannot store, although the other one can; None for anything else."""
    code = getattr(error, "sqlstate", None)
    is_of_driver = isinstance(error, psycopg.DataError) and code is None
    if is_of_driver or code == "22021":  # character_not_in_repertoire
        return fault(
            Reason.INVALID_FIELD, "A name, path or word of the request contains a NUL character.", field="text"
        )
    if code == "54000" and isinstance(error, psycopg.Error):  # program_limit_exceeded
        return _too_long(error.diag)
    return None


def _too_long(diagnostic: psycopg.errors.Diagnostic) -> Exception | None:
    """The error for a too long index entry, with the sizes from the message; None if it has none."""
    *_, limit, actual = 0, 0, *sorted(map(int, _FIGURE.findall(diagnostic.message_primary or "")))
    if limit < INDEXED_BYTES_MAX:
        return None
    field = "pattern" if diagnostic.table_name == "file_constraints" else "path"
    message = (
        f"The {field} has too many bytes for the index of the database: {actual}; the limit is {INDEXED_BYTES_MAX}. "
        "Characters beyond ASCII have two to four."
    )
    return fault(Reason.LIMIT_EXCEEDED, message, field=field, limit=INDEXED_BYTES_MAX, actual=actual, unit="bytes")


def commit_unknown(error: BaseException) -> Exception:
    """The error for a connection that broke during the commit."""
    failure = fault(
        Reason.DATABASE_UNAVAILABLE,
        f"The connection broke during the commit ({_title(error)}), so this may or may not be written: "
        "retry with the same request id.",
    )
    failure.__cause__ = error
    return failure


def _title(error: BaseException) -> str:
    """The class of an error; its message may contain values."""
    found = driver_error(error)
    code = getattr(found, "sqlstate", None)
    return f"{type(found).__name__} {code}" if code else type(found).__name__

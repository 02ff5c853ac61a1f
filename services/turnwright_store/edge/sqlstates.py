"""What PostgreSQL says of a failure, by its codes: what is tried again, where, and what the caller hears.

Source: PostgreSQL 15, appendix A.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

import psycopg
from sqlalchemy.exc import DBAPIError

from turnwright_core.errors import Reason, fault


class Cure(Enum):
    """What helps after a failure."""

    NONE = auto()
    """Nothing: it is the statement's own."""
    AGAIN = auto()
    """The same transaction once more: it met another one."""
    CONNECT = auto()
    """Another connection."""
    LATER = auto()
    """Time: the server has too much to do, or has something to wait for."""


_CURES: Final = {
    "40001": Cure.AGAIN,  # serialization_failure
    "40P01": Cure.AGAIN,  # deadlock_detected
    "25P03": Cure.CONNECT,  # idle_in_transaction_session_timeout
    "55P03": Cure.LATER,  # lock_not_available
    "57014": Cure.LATER,  # query_canceled, by statement_timeout
}
_CURES_BY_CLASS: Final = {
    "08": Cure.CONNECT,  # connection exception
    "57": Cure.CONNECT,  # operator intervention: shut down, crashed, starting
    "53": Cure.LATER,  # insufficient resources: disk, memory, connections
}


def driver_error(error: BaseException) -> BaseException:
    """The driver's own error below SQLAlchemy's."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def cure_of(error: BaseException, *, is_open: bool) -> Cure:
    """What helps. `is_open` says whether the connection is still there."""
    found = driver_error(error)
    if not isinstance(found, psycopg.Error):
        return Cure.NONE
    if not is_open:
        return Cure.CONNECT
    code = found.sqlstate or ""
    return _CURES.get(code) or _CURES_BY_CLASS.get(code[:2], Cure.NONE)


def heard(error: Exception, cure: Cure) -> Exception:
    """What the caller hears of a failure that nothing more is done about; its own errors stay what they are."""
    if cure is Cure.NONE:
        return error
    told = fault(Reason.DATABASE_UNAVAILABLE, f"The database cannot do it now ({_title(error)}): call again.")
    told.__cause__ = error
    return told


def unsure(error: BaseException) -> Exception:
    """What the caller hears when the connection broke while the server committed."""
    told = fault(
        Reason.DATABASE_UNAVAILABLE,
        f"The connection broke during the commit ({_title(error)}), so this may be written or not: "
        "call again with the same request id.",
    )
    told.__cause__ = error
    return told


def _title(error: BaseException) -> str:
    """The kind of an error; its text may hold values."""
    found = driver_error(error)
    code = getattr(found, "sqlstate", None)
    return f"{type(found).__name__} {code}" if code else type(found).__name__

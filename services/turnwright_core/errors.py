"""The one error tree. A class says what the caller can do, the reason what happened, the metadata with which values.

    TurnwrightError
    ├── InvalidError         INVALID_ARGUMENT     change the call
    ├── MissingError         NOT_FOUND            name something that exists
    ├── ExistsError          ALREADY_EXISTS       choose another name
    ├── UnauthenticatedError UNAUTHENTICATED      send a valid token
    ├── DeniedError          PERMISSION_DENIED    ask for less, or with another token
    ├── PreconditionError    FAILED_PRECONDITION  bring the state in order first
    ├── ConflictError        ABORTED              read again, then repeat
    ├── RangeError           OUT_OF_RANGE         start from a snapshot
    ├── ExhaustedError       RESOURCE_EXHAUSTED   wait, or make it smaller
    ├── UnavailableError     UNAVAILABLE          repeat later
    ├── DeadlineError        DEADLINE_EXCEEDED    repeat with more time
    └── InternalError        INTERNAL             report the error id

The codes are put on the wire by `kit/errors.py`, and read there by `core/rpc/errors.py`: nothing here knows gRPC.
Source: architecture 14.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from turnwright_values.errors import CODES, ErrorReason

Reason: TypeAlias = ErrorReason
"""Why an rpc failed."""


class TurnwrightError(Exception):
    """An error for the caller. The message is for people and contains no secrets."""

    code = ""
    """The gRPC code, by its name."""

    def __init__(self, reason: Reason, message: str, **metadata: object) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.metadata = {key: str(value) for key, value in metadata.items()}

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


class InvalidError(TurnwrightError):
    """Change the call."""

    code = "INVALID_ARGUMENT"


class MissingError(TurnwrightError):
    """Name something that exists."""

    code = "NOT_FOUND"


class ExistsError(TurnwrightError):
    """Choose another name."""

    code = "ALREADY_EXISTS"


class UnauthenticatedError(TurnwrightError):
    """Send a valid token."""

    code = "UNAUTHENTICATED"


class DeniedError(TurnwrightError):
    """Ask for less, or with another token."""

    code = "PERMISSION_DENIED"


class PreconditionError(TurnwrightError):
    """Bring the state in order first."""

    code = "FAILED_PRECONDITION"


class ConflictError(TurnwrightError):
    """Read again, then retry."""

    code = "ABORTED"


class RangeError(TurnwrightError):
    """Start from a snapshot."""

    code = "OUT_OF_RANGE"


class ExhaustedError(TurnwrightError):
    """Wait, or make it smaller."""

    code = "RESOURCE_EXHAUSTED"


class UnavailableError(TurnwrightError):
    """Retry later."""

    code = "UNAVAILABLE"


class DeadlineError(TurnwrightError):
    """Retry with more time."""

    code = "DEADLINE_EXCEEDED"


class InternalError(TurnwrightError):
    """Report the error id."""

    code = "INTERNAL"


_CLASSES: Final = {one.code: one for one in TurnwrightError.__subclasses__()}
CLASS_OF_REASON: Final = {reason: _CLASSES[CODES.get(reason, InternalError.code)] for reason in Reason}
"""The class of every reason: that of its code, as the contract has it."""

ANSWERED: Final = "turnwright-watching"
"""First message of a watch before there is any event, and of a model call before the vendor is called; also marks
errors of calls that ended after it.
"""


def fault(reason: Reason, message: str, **metadata: object) -> TurnwrightError:
    return CLASS_OF_REASON[reason](reason, message, **metadata)


def message_of(error: Exception) -> str:
    """What an error says, for a text that has no place for the name of a reason."""
    return error.message if isinstance(error, TurnwrightError) else str(error)


def run_not_found(project: str, run: str) -> TurnwrightError:
    """The error for a run that does not exist, or no longer, and for one that is private to somebody else."""
    message = f"There is no run {run!r} in {project}: list its runs and name one of them, or start one."
    return fault(Reason.RUN_NOT_FOUND, message, project=project, run=run)


def project_not_found(name: str) -> TurnwrightError:
    """The error for a project that does not exist, and for one that is closed to the caller: nothing tells which."""
    message = f"There is no project {name!r} that you can see: register its directory first, or ask for a grant in it."
    return fault(Reason.PROJECT_NOT_FOUND, message, project=name)

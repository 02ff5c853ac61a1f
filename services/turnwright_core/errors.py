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

`CLASS_OF_REASON` is total over the reasons of the contract; a test proves it. The codes are put on the wire by
`kit/errors.py`, and read there by `core/rpc/errors.py`: nothing here knows gRPC. Source: architecture 14.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from turnwright_values.errors import ErrorReason

Reason: TypeAlias = ErrorReason
"""Why an rpc failed."""


class TurnwrightError(Exception):
    """An error for the caller. The message is for people and contains no secrets."""

    def __init__(self, reason: Reason, message: str, **metadata: object) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.metadata = {key: str(value) for key, value in metadata.items()}

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


class InvalidError(TurnwrightError):
    """Change the call."""


class MissingError(TurnwrightError):
    """Name something that exists."""


class ExistsError(TurnwrightError):
    """Choose another name."""


class UnauthenticatedError(TurnwrightError):
    """Send a valid token."""


class DeniedError(TurnwrightError):
    """Ask for less, or with another token."""


class PreconditionError(TurnwrightError):
    """Bring the state in order first."""


class ConflictError(TurnwrightError):
    """Read again, then retry."""


class RangeError(TurnwrightError):
    """Start from a snapshot."""


class ExhaustedError(TurnwrightError):
    """Wait, or make it smaller."""


class UnavailableError(TurnwrightError):
    """Retry later."""


class DeadlineError(TurnwrightError):
    """Retry with more time."""


class InternalError(TurnwrightError):
    """Report the error id."""


CLASS_OF_REASON: Final[dict[Reason, type[TurnwrightError]]] = {
    Reason.UNSPECIFIED: InternalError,
    Reason.INTERNAL: InternalError,
    Reason.UNAUTHENTICATED: UnauthenticatedError,
    Reason.TIER_FORBIDDEN: DeniedError,
    Reason.WRITER_FORBIDDEN: DeniedError,
    Reason.INVALID_FIELD: InvalidError,
    Reason.LIMIT_EXCEEDED: InvalidError,
    Reason.PROJECT_NOT_FOUND: MissingError,
    Reason.RUN_NOT_FOUND: MissingError,
    Reason.ENTRY_NOT_FOUND: MissingError,
    Reason.MODEL_NOT_FOUND: MissingError,
    Reason.MODEL_REQUIRED: InvalidError,
    Reason.RUN_EXISTS: ExistsError,
    Reason.TRANSITION_FORBIDDEN: PreconditionError,
    Reason.LEASE_LOST: PreconditionError,
    Reason.REVISION_CONFLICT: ConflictError,
    Reason.NOT_PROPOSED: PreconditionError,
    Reason.CURSOR_FOREIGN: RangeError,
    Reason.WORKSPACE_UNAVAILABLE: PreconditionError,
    Reason.QUEUE_FULL: ExhaustedError,
    Reason.REQUEST_ID_REUSED: ExistsError,
    Reason.SERVICE_UNAVAILABLE: UnavailableError,
    Reason.VENDOR_NOT_CONFIGURED: PreconditionError,
    Reason.VENDOR_UNREACHABLE: UnavailableError,
    Reason.VENDOR_AUTH: DeniedError,
    Reason.VENDOR_REJECTED: PreconditionError,
    Reason.VENDOR_RATE_LIMIT: ExhaustedError,
    Reason.VENDOR_FAILED: UnavailableError,
    Reason.STREAM_INTERRUPTED: UnavailableError,
    Reason.VENDOR_PROTOCOL: PreconditionError,
    Reason.CONTEXT_EXCEEDED: ExhaustedError,
    Reason.VENDOR_TIMEOUT: DeadlineError,
    Reason.DRAINING: UnavailableError,
    Reason.LEASE_HELD: PreconditionError,
    Reason.PACKET_BASE_MISSING: PreconditionError,
    Reason.TURN_NOT_FOUND: MissingError,
    Reason.SCHEME_FIXED: PreconditionError,
    Reason.DATABASE_UNAVAILABLE: UnavailableError,
    Reason.VERSION_MISMATCH: PreconditionError,
    Reason.PLUGIN_FAILED: PreconditionError,
    Reason.NOT_OWNER: PreconditionError,
    Reason.MESSAGE_TOO_LARGE: ExhaustedError,
    Reason.PLAN_ENTRY: InvalidError,
    Reason.COMMAND_GATED: PreconditionError,
    Reason.PROMPT_MESSAGE_UNKNOWN: PreconditionError,
    Reason.PROMPT_TARGET_MISSING: PreconditionError,
    Reason.PROMPT_SHAPE_REFUSED: PreconditionError,
    Reason.GRANT_WITHDRAWN: PreconditionError,
    Reason.RIGHT_MISSING: DeniedError,
    Reason.QUOTA_EXCEEDED: ExhaustedError,
    Reason.RULE_DENIED: DeniedError,
    Reason.TOOLS_UNKNOWN: PreconditionError,
}
"""The class, and thereby the canonical code, of every reason."""

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

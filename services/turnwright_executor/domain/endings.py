"""How a loop ends from outside its turns: mapping from errors to a status, a reason and outcomes.

Source: architecture 8, 11; rows RU217, RU220; decisions C6, C26, C27, C36.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.runs import ABORTED, FAILED, TOO_LARGE
from turnwright_executor.domain.budgets import WORD as BUDGET_EXHAUSTED
from turnwright_executor.domain.budgets import Exhaustion

AWAY: Final = (Reason.SERVICE_UNAVAILABLE, Reason.DATABASE_UNAVAILABLE, Reason.DRAINING, Reason.QUEUE_FULL)
"""Reasons of transient failures: the loop itself is fine."""

EXPIRED_OUTCOME: Final = "expired:499"
"""Outcome of an expired record, as the store writes it."""

REJECTED_OUTCOME: Final = "rejected:403"
"""Outcome of an effect that was rejected, by somebody or in the whole run."""

GONE: Final = (Reason.RUN_NOT_FOUND, Reason.PROJECT_NOT_FOUND)
"""Reasons of failures because the subject of the call was removed."""


CRASH_LOOP: Final = "crash_loop"
"""Reason of a loop whose turn repeatedly crashed its executors."""


def is_transient(error: Exception) -> bool:
    """Whether a failure is unrelated to the work: a service is unavailable, or another executor has the run."""
    passing = (*AWAY, Reason.LEASE_LOST, Reason.LEASE_HELD)
    return isinstance(error, TurnwrightError) and error.reason in passing


def is_of_store(error: TurnwrightError) -> bool:
    """Whether the store or its database failed or was overloaded."""
    of_store = (Reason.DATABASE_UNAVAILABLE, Reason.QUEUE_FULL)
    return error.reason in of_store or error.metadata.get("service") == "store"


class Ending(Struct, frozen=True):
    """How a loop ends: its status, a reason, and for a failure the sentence that the model reads next time."""

    status: int
    word: str
    message: str = ""
    kind: str = ""
    """Refines the reason, if it can have several meanings; only in the loop's reason, not in entries."""

    @property
    def outcome(self) -> str:
        return f"{self.word}:{self.status}"

    @property
    def reason(self) -> str:
        """The loop's reason: `word`, `word: message` or `word:kind: message`."""
        word = f"{self.word}:{self.kind}" if self.kind else self.word
        return f"{word}: {self.message}" if self.message else word


ABORT: Final = Ending(ABORTED, "aborted")

TOO_LONG: Final = Ending(TOO_LARGE, Reason.CONTEXT_EXCEEDED.name.lower())
"""The ending for a packet that is too long for its model, as the assembler or the vendor found."""


def ending_of(error: TurnwrightError | OSError) -> Ending:
    """The ending for an error: 413 if the context was too long for the model, else 499 or 500.

    499 if a quota has no room, or whoever asked for the loop has no right to have anything run any more.
    """
    if isinstance(error, OSError):
        return Ending(FAILED, "workspace_unavailable", f"The project's directory cannot be read: {error.strerror}.")
    if error.reason is Reason.CONTEXT_EXCEEDED:
        return replace(TOO_LONG, message=error.message)
    if error.reason is Reason.QUOTA_EXCEEDED:
        return Ending(ABORTED, "quota_exhausted", error.message)
    if error.reason is Reason.RIGHT_MISSING:
        return Ending(ABORTED, "right_missing", error.message)
    return Ending(FAILED, error.reason.name.lower(), error.message)


def outcome_of(error: TurnwrightError) -> str:
    """`word:code`, as in entries."""
    return ending_of(error).outcome


def crash_loop(losses: int) -> Ending:
    """The ending for a turn that repeatedly crashed its executors."""
    message = (
        f"{losses} executors ended in the middle of this turn, one after the other, and it was given up: "
        "what it does may be what ends them."
    )
    return Ending(FAILED, CRASH_LOOP, message)


def crashed(error_id: str) -> Ending:
    return Ending(
        FAILED, "internal", f"A fault of the runtime ended the loop. Look for {error_id} in the executor's log."
    )


def budget_exhausted(exhaustion: Exhaustion) -> Ending:
    return Ending(ABORTED, BUDGET_EXHAUSTED, exhaustion.detail, exhaustion.kind.value)

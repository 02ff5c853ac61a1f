"""How a loop ends from outside of its turns, and what an error says of that: the status, and what entries carry.

Source: architecture 8, 11; rows RU217, RU220; decisions C6, C26, C27, C36.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.runs import ABORTED, FAILED, TOO_LARGE
from turnwright_executor.domain.budgets import WORD as BUDGET_EXHAUSTED
from turnwright_executor.domain.budgets import Exhaustion

AWAY: Final = (Reason.SERVICE_UNAVAILABLE, Reason.DATABASE_UNAVAILABLE, Reason.DRAINING, Reason.QUEUE_FULL)
"""Why a call failed that may succeed in a moment: nothing is wrong with the loop."""

EXPIRED_OUTCOME: Final = "expired:499"
"""Outcome of a record that nobody decided in time, as the store writes it."""

GONE: Final = (Reason.RUN_NOT_FOUND, Reason.PROJECT_NOT_FOUND)
"""Why a call failed that has nothing left to be about."""


CRASH_LOOP: Final = "crash_loop"
"""Why a loop ends whose turn has ended the executors that worked on it."""


def is_transient(error: Exception) -> bool:
    """Whether a failure says nothing of the work: a service is away, or the run is another executor's by now."""
    passing = (*AWAY, Reason.LEASE_LOST, Reason.LEASE_HELD)
    return isinstance(error, TurnwrightError) and error.reason in passing


def is_of_store(error: TurnwrightError) -> bool:
    """Whether it is the store, or its database, that did not answer or had too much to do, whoever asked it."""
    of_store = (Reason.DATABASE_UNAVAILABLE, Reason.QUEUE_FULL)
    return error.reason in of_store or error.metadata.get("service") == "store"


def status_of_error(error: TurnwrightError) -> int:
    """413 when the context was too long for the model, else 500."""
    return TOO_LARGE if error.reason is Reason.CONTEXT_EXCEEDED else FAILED


def outcome_of(error: TurnwrightError) -> str:
    """`word:code`, as entries carry it."""
    return f"{error.reason.name.lower()}:{status_of_error(error)}"


class Ending(Struct, frozen=True):
    """How a loop ends: its status, a word for it, and for a failure the sentence that the model reads next time."""

    status: int
    word: str
    message: str = ""
    kind: str = ""
    """Which of several that the word can mean; the reason of the loop says it, entries do not."""

    @property
    def outcome(self) -> str:
        return f"{self.word}:{self.status}"

    @property
    def reason(self) -> str:
        """What the loop says that ends with it: `word`, `word: message` or `word:kind: message`."""
        word = f"{self.word}:{self.kind}" if self.kind else self.word
        return f"{word}: {self.message}" if self.message else word


ABORT: Final = Ending(ABORTED, "aborted")


def ending_of(error: TurnwrightError | OSError) -> Ending:
    """How a loop ends that ran into an error: 413 when the context was too long for the model, else 500."""
    if isinstance(error, OSError):
        return Ending(FAILED, "workspace_unavailable", f"The project's directory cannot be read: {error.strerror}.")
    return Ending(status_of_error(error), error.reason.name.lower(), error.message)


def crash_loop(losses: int) -> Ending:
    """How a loop ends whose turn has ended the executors that worked on it."""
    message = (
        f"{losses} executors ended in the middle of this turn, one after the other, and it was given up: "
        "what it does may be what ends them."
    )
    return Ending(FAILED, CRASH_LOOP, message)


def crashed(error_id: str) -> Ending:
    """How a loop ends that ran into a fault of the runtime."""
    return Ending(
        FAILED, "internal", f"A fault of the runtime ended the loop. Look for {error_id} in the executor's log."
    )


def budget_exhausted(exhaustion: Exhaustion) -> Ending:
    return Ending(ABORTED, BUDGET_EXHAUSTED, exhaustion.detail, exhaustion.kind.value)

"""How an error ends a loop: its status, and the outcome that entries carry.

Source: architecture 8; rows RU217, RU220; decisions C6, C26.
"""

from __future__ import annotations

from typing import Final

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.runs import FAILED, TOO_LARGE

AWAY: Final = (Reason.SERVICE_UNAVAILABLE, Reason.DATABASE_UNAVAILABLE, Reason.DRAINING, Reason.QUEUE_FULL)
"""Why a call failed that may succeed in a moment: nothing is wrong with the loop."""

EXPIRED_OUTCOME: Final = "expired:499"
"""Outcome of a record that nobody decided in time, as the store writes it."""

GONE: Final = (Reason.RUN_NOT_FOUND, Reason.PROJECT_NOT_FOUND)
"""Why a call failed that has nothing left to be about."""


def is_passing(error: Exception) -> bool:
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

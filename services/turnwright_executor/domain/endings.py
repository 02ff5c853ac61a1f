"""How an error ends a loop: its status, and the outcome that entries carry.

Source: architecture 8; rows RU217, RU220; decisions C6, C26.
"""

from __future__ import annotations

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.runs import FAILED, TOO_LARGE


def status_of_error(error: TurnwrightError) -> int:
    """413 when the context was too long for the model, else 500."""
    return TOO_LARGE if error.reason is Reason.CONTEXT_EXCEEDED else FAILED


def outcome_of(error: TurnwrightError) -> str:
    """`word:code`, as entries carry it."""
    return f"{error.reason.name.lower()}:{status_of_error(error)}"

"""Runs, loops, turns, and their settings. Source: architecture 3; rows RU001-RU008, RU101-RU111, decisions C6, C27."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

QUEUED: Final = 100
RUNNING: Final = 102
COMPLETED: Final = 200
PROPOSED: Final = 202
NO_CONTENT: Final = 204
TOO_LARGE: Final = 413
UNPROCESSABLE: Final = 422
ABORTED: Final = 499
FAILED: Final = 500


class LoopStatus(Struct, frozen=True):
    """What there is to know of a status of loops; runs have those from which `to` leads on."""

    code: int
    word: str
    """For lists."""
    sentence: str = ""
    """How a command that follows the loop ends, for people; empty: it goes on following."""
    exit_code: int = 0
    """The exit code of such a command; 0 is success."""
    after: int = 0
    """Status of the run after the loop; 0: the same, which must be one that runs have: one with `to`."""
    error: bool = False
    """Whether the run is in the state ERROR after the loop, unless a terminal update ended it."""
    update: str = ""
    """What a model says by it in an update; empty: it cannot."""
    to: tuple[int, ...] = ()
    """To which statuses a run can go from it (RU101-RU107)."""


_STATUSES: Final = (
    LoopStatus(QUEUED, "queued", to=(RUNNING, ABORTED)),
    LoopStatus(RUNNING, "running", update="I go on", to=(COMPLETED, PROPOSED, FAILED, ABORTED)),
    LoopStatus(PROPOSED, "waits", "Waiting for a decision", 6, to=(RUNNING, COMPLETED, ABORTED)),
    LoopStatus(COMPLETED, "done", "Done", update="all is done", to=(RUNNING, ABORTED)),
    LoopStatus(NO_CONTENT, "done", "Done, with nothing to report", 0, COMPLETED, update="nothing had to be done"),
    LoopStatus(TOO_LARGE, "too large", "Failed: the context does not fit the model's window", 5, FAILED, error=True),
    LoopStatus(UNPROCESSABLE, "cannot", "Cannot be done", 3, COMPLETED, error=True, update="it cannot be done"),
    LoopStatus(ABORTED, "stopped", "Stopped", 4, to=(RUNNING,)),
    LoopStatus(FAILED, "failed", "Failed", 5, error=True, to=(RUNNING, ABORTED)),
)
STATUSES: Final = {one.code: one for one in _STATUSES}
"""All statuses of loops. Tables of the store, the tool `update`, exit codes and words for people follow from it.

CONTRIBUTING.md says what does not.
"""

RUN_TRANSITIONS: Final = {one.code: frozenset(one.to) for one in STATUSES.values() if one.to}
"""The state machine of a run (RU101-RU107). Writing the same status again is always allowed."""

LOOP_ACTIVE: Final = (RUNNING, PROPOSED)
LOOP_OPEN: Final = (QUEUED, *LOOP_ACTIVE)
LOOP_ENDED: Final = frozenset(STATUSES) - frozenset(LOOP_OPEN)
"""Final statuses of a loop (C6)."""

TERMINAL_UPDATES: Final = frozenset(one.code for one in STATUSES.values() if one.update and one.code in LOOP_ENDED)
"""Statuses of an update that end a loop (RU076)."""


def run_status_after(loop_status: int, reason: str) -> int:
    """The run's status after a loop has ended. Source: C27."""
    return COMPLETED if reason in (REJECTED, EXPIRED) else STATUSES[loop_status].after or loop_status


REJECTED: Final = "rejected"
"""Reason of a loop that was ended by a rejection (C20)."""

EXPIRED: Final = "expired"
"""Reason of a loop whose proposal was not decided in time."""

"""What a run is doing, as a chat shows it: one table from the rows of a run to eight states.

The store asks it for readers and for its gates, the hub of an executor for watchers; so everybody says the same. While
a loop is active, what its latest turn waits for decides; the first of `_WAITING` counts. Otherwise a queued loop is
about to ask the model, and behind the last loop its end decides.
Source: architecture 7; rows RS01-RS06, RS08, RS10.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final

from turnwright_values.types import Run, SessionState

from turnwright_core.runs import LOOP_ACTIVE, STATUSES, TERMINAL_UPDATES


class Wait(Enum):
    """What a command of the latest turn, which has not ended, waits for."""

    APPROVAL = "approval"
    """Somebody who accepts its effect."""
    ANSWER = "answer"
    """Somebody who answers its question."""
    CLIENT = "client"
    """The client that executes its tool."""
    AGENTS = "agents"
    """The ends of agents."""
    WORK = "work"
    """The executor."""


_WAITING: Final = (
    (Wait.APPROVAL, SessionState.PAUSED),
    (Wait.ANSWER, SessionState.WAITING_USER_INPUT),
    (Wait.CLIENT, SessionState.WAITING_IDE),
    (Wait.AGENTS, SessionState.EXECUTING_TOOLS),
    (Wait.WORK, SessionState.EXECUTING_TOOLS),
)

UPDATE: Final = "update"
"""Reason of a loop that was ended by a terminal update."""


def is_active(run: Run) -> bool:
    return run.loop is not None and run.loop.status in LOOP_ACTIVE


def session_state(status: int, reason: str, loops_queued: int, waits: Collection[Wait]) -> SessionState:
    """What a run is doing, by status and reason of the loop that it shows (0: none), and what waits.

    `waits` is what the commands of its latest turn wait for that have not ended.
    """
    if status in LOOP_ACTIVE:
        return next((state for wait, state in _WAITING if wait in waits), SessionState.GENERATING)
    if loops_queued:
        return SessionState.GENERATING
    if reason == UPDATE:
        return SessionState.COMPLETED if status in TERMINAL_UPDATES else SessionState.IDLE
    return SessionState.ERROR if status in STATUSES and STATUSES[status].error else SessionState.IDLE

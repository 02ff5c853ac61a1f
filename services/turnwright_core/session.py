"""What a run is doing, as a chat shows it: one table from the rows of a run to eight states.

The store asks it for readers and for its gates, the hub of an executor for watchers; so everybody says the same. While
a loop is active, what its latest turn waits for decides; the first of `_WAITING` counts. Otherwise a queued loop is
about to ask the model, and behind the last loop its end decides.
Source: architecture 7; rows RS01-RS06, RS08, RS10.

The queue of a run: loops that have not begun, and between them edits of messages that wait for their turn.

The store lists it for callers, and the hub of an executor sends it to watchers; both order it here.
Source: architecture 7; rows RC11, RC12, RE01; decision C48.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final

from msgspec import Struct
from turnwright_values.types import Loop, QueuedCommand, QueuedCommandKind, Run, SessionState

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


EDIT_SCHEME: Final = "command"
"""Scheme of the entries that are waiting edits."""

DRAFT: Final = "draft://main"
"""Path of a run's draft."""
TOKENS: Final = "tokens"
WINDOW_TOKENS: Final = "window_tokens"
"""Attributes of a draft: what it would take, and of what window."""

QUEUE_LISTED_MAX: Final = 200
"""Most commands that are listed: more than can wait by default."""

PREVIEW_CHARS: Final = 120
"""Characters of a preview; longer texts are cut, and end with an ellipsis."""


class QueuedEdit(Struct, frozen=True):
    """The attributes of the entry of a queued edit."""

    after_loop: int
    """Sequence of the loop after which it is carried out."""
    kind: str
    """The name of a QueuedCommandKind in lower case."""
    preview: str
    command_id: str
    principal: str
    loop: int = 0
    """The loop that comes with it; 0: none."""


def truncate_preview(text: str) -> str:
    return text if len(text) <= PREVIEW_CHARS else f"{text[:PREVIEW_CHARS]}\u2026"


def index_preview(index: int, text: str = "") -> str:
    """The preview of a place in the list of messages, and of what is sent there."""
    return f"@{index}: {text}" if text else f"@{index}"


def queued_loop(loop: Loop) -> QueuedCommand:
    return QueuedCommand(loop.command_id, QueuedCommandKind.USER_MESSAGE, loop.sequence, truncate_preview(loop.prompt))


def merge_queue(loops: Mapping[int, QueuedCommand], edits: Iterable[QueuedEdit]) -> list[QueuedCommand]:
    """The queued commands, the next one first. `loops` are by sequence, `edits` in order.

    A loop that an edit brings is listed with the edit.
    """
    placed: list[tuple[tuple[int, int], QueuedCommand]] = []
    brought = set()
    for edit in edits:
        brought.add(edit.loop)
        kind = QueuedCommandKind[edit.kind.upper()]
        placed.append(((edit.after_loop, 1), QueuedCommand(edit.command_id, kind, edit.loop, edit.preview)))
    placed += [((sequence, 0), loop) for sequence, loop in loops.items() if sequence not in brought]
    return [one for _, one in sorted(placed, key=lambda pair: pair[0])][:QUEUE_LISTED_MAX]

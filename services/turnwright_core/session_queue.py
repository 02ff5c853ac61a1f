"""The queue of a run: loops that have not begun, and between them edits of messages that wait for their turn.

The store lists it for callers, and the hub of an executor sends it to watchers; both order it here.
Source: architecture 7; rows RC11, RC12, RE01; decision C48.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct
from turnwright_values.types import Loop, QueuedCommand, QueuedCommandKind

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

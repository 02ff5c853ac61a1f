"""What the assembler needs from outside: one reader of runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from turnwright_core.entries import Cursor, Entry


@dataclass(frozen=True, slots=True)
class ViewPart:
    """A part of a run's view: entries that entered or changed, paths that left, and in the last part the cursor."""

    entries: tuple[Entry, ...]
    removed: tuple[str, ...]
    cursor: Cursor | None


class RunReader(Protocol):
    """Reads what a packet is made of."""

    def read(self, project: str, run: str, after: Cursor | None) -> AsyncIterator[ViewPart]:
        """The entries of a packet and `instructions://system`: all of them, or what changed after a cursor.

        Raises TurnwrightError; a RangeError says that the cursor is of no use and a snapshot is.
        """
        ...

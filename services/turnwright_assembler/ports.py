"""What the assembler needs from outside: one reader of runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from msgspec import Struct

from turnwright_core.entries import Cursor, Entry
from turnwright_core.schemes import Schemes


class ViewPart(Struct, frozen=True):
    """A part of a run's view: entries that entered or changed, paths that left, and in the last part the cursor."""

    entries: tuple[Entry, ...]
    removed: tuple[str, ...]
    cursor: Cursor | None
    schemes: Schemes | None = None
    """The registered schemes, in the first part and only where they are not those that the reader knows."""


class ViewPatch(Struct, frozen=True):
    """What one write has changed of a run's view between two moments, as whoever wrote it was told."""

    before: Cursor
    part: ViewPart
    """Its cursor is the moment after the write."""
    schemes_version: str
    """The registered schemes by which it was told."""


class RunReader(Protocol):
    """Reads what a packet is made of."""

    def read(self, project: str, run: str, after: Cursor | None, schemes: str) -> AsyncGenerator[ViewPart, None]:
        """The entries of a packet and `instructions://system`: all of them, or what changed after a cursor.

        `schemes` is the version of the registered schemes that the caller goes by.
        Raises TurnwrightError; a RangeError says that the cursor is of no use and a snapshot is.
        """
        ...

    def read_messages(self, project: str, run: str) -> AsyncGenerator[ViewPart, None]:
        """What the messages of a run are made of, and `instructions://system`. Raises TurnwrightError."""
        ...

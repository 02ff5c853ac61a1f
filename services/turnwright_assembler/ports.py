"""The port of the assembler: a reader of runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from msgspec import Struct
from turnwright.types.v1.cursor_pb2 import Moment
from turnwright_values.types import Cursor, Entry

from turnwright_core.schemes import Schemes


class ViewPart(Struct, frozen=True):
    """A part of a run's view: added or changed entries, removed paths, and in the last part the cursor."""

    entries: tuple[Entry, ...]
    removed: tuple[str, ...]
    cursor: Cursor | None
    schemes: Schemes | None = None
    """The registered schemes, only in the first part and only if the reader has another version."""


class RunReader(Protocol):
    """Reads the input of packets."""

    def read(self, project: str, run: str, after: Cursor | None, schemes: str) -> AsyncGenerator[ViewPart, None]:
        """The entries of a packet and `instructions://system`: all of them, or what changed after a cursor.

        `schemes` is the caller's version of the registered schemes. Raises TurnwrightError; a RangeError means that the
        cursor is unusable and a snapshot must be read.
        """

    def read_messages(self, project: str, run: str, after: Cursor | None) -> AsyncGenerator[ViewPart, None]:
        """The same of what the messages of a run are made of, which no scheme has a say in."""

    def read_at(self, project: str, run: str, at: Moment | None, *, messages: bool) -> AsyncGenerator[ViewPart, None]:
        """A snapshot as `read` or `read_messages` reads it, of a moment; None: now. Raises TurnwrightError."""

    async def read_packet(self, project: str, run: str, turn: int) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The stored packet of a turn: roles with their pieces; none if there is none. Raises TurnwrightError."""

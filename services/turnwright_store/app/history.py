"""Point-in-time reads of a run: its earlier moments, given as a cursor or as the end of a turn.

A turn that a fork inherited is a moment of the ancestor, before the fork began. Source: architecture 3 (any earlier
moment of a run can be read; forks).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright_values.types import Cursor

from turnwright_core.errors import Reason, fault
from turnwright_store.sql.forks import TurnHome, find_turn_home
from turnwright_store.sql.runs import RunHead
from turnwright_store.sql.turns import get_turn
from turnwright_store.sql.views import Moment, moment_of

NUMBER_MAX: Final = 2**32 - 1
"""Largest turn number in the contract."""


class PacketMoment(Struct, frozen=True):
    """The moment that the packet of an ended turn was made from."""

    turn: int


At = Cursor | int | PacketMoment
"""A moment as given by a caller; an int is the number of a turn that has ended."""


class RunSnapshot(Struct, frozen=True):
    """A run as it is or as it was at an earlier moment."""

    run: RunHead
    """The run to read: the ancestor if the turn was inherited."""
    moment: Moment | None
    """None: now."""
    cursor: Cursor
    """The moment in revisions of the requested run."""


def check_cursor(after: Cursor, now: Cursor) -> None:
    """Refuse a cursor of another history, or from the future of this one. Raises CURSOR_FOREIGN."""
    reached = (
        0 <= after.run_revision <= now.run_revision
        and 0 <= after.project_revision <= now.project_revision
        and 0 <= after.global_revision <= now.global_revision
    )
    if after.incarnation != now.incarnation or not reached:
        raise fault(Reason.CURSOR_FOREIGN, "This cursor belongs to another history of the store: read a snapshot.")


def run_at(connection: Connection, run: RunHead, incarnation: str, at: At | None) -> RunSnapshot:
    """A run at a moment; None: now. Raises CURSOR_FOREIGN, TURN_NOT_FOUND."""
    now = run.cursor(incarnation)
    if at is None:
        return RunSnapshot(run, None, now)
    if isinstance(at, Cursor):
        check_cursor(at, now)
        return RunSnapshot(run, moment_of(run, at), at)
    home = get_turn_home(connection, run, at if isinstance(at, int) else at.turn)
    then = Cursor(incarnation, home.revision, home.project, home.global_)
    if isinstance(at, PacketMoment):
        result = get_turn(connection, home.run_id, at.turn).result
        if result is None or result.cursor is None:
            message = f"Turn {at.turn} of {run.alias} ended before its packet was assembled."
            raise fault(Reason.TURN_NOT_FOUND, message, run=run.alias, turn=at.turn)
        # A restored backup has another incarnation and the same revisions.
        then = replace(result.cursor, incarnation=incarnation)
    # A fork has no revision for a moment before it: in its feed that is the beginning.
    cursor = then if home.run_id == run.id else replace(then, run_revision=0)
    return RunSnapshot(replace(run, id=home.run_id), moment_of(run, then), cursor)


def get_turn_home(connection: Connection, run: RunHead, number: int) -> TurnHome:
    """Where an ended turn is stored. Raises TURN_NOT_FOUND."""
    home = find_turn_home(connection, run.id, number) if 0 < number <= NUMBER_MAX else None
    if home is None:
        message = f"No turn {number} of {run.alias} has ended, or the run that had it was removed."
        raise fault(Reason.TURN_NOT_FOUND, message, run=run.alias, turn=number)
    return home

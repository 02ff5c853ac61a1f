"""The next loop of a run, denormalized into the run's row, so that an index on it is the work queue.

Theory of operation. `runs.next_loop` is derived from the run, its loops and its undecided proposals, and recomputed by
every write to one of these. A run that waits for a decision has none, whatever is queued behind. It does not depend on
the lease, which expires without a write.
Source: architecture 3 (fair between projects); rows RU109, RU110; docs/adr/0010.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal_column,
    or_,
    select,
    update,
)
from turnwright_values.types import State

from turnwright_core.runs import PROPOSED, QUEUED
from turnwright_store.sql.clauses import unanswered
from turnwright_store.sql.keys import number_in
from turnwright_store.sql.tables import loops, runs, views


def _is_undecided(turn_open: ColumnElement[Any]) -> ColumnElement[bool]:
    return exists(
        select(literal_column("1"))
        .select_from(views)
        .where(
            views.c.run_id == runs.c.id,
            views.c.turn == turn_open,
            views.c.to_rev.is_(None),
            views.c.state == number_in(State.PROPOSED),
        )
        .correlate(runs)
    )


IS_UNDECIDED: Final = _is_undecided(runs.c.turn_open)
"""A proposal in the open turn of a run waits for a decision."""

_OLDEST: Final = (
    select(func.min(loops.c.id))
    .where(loops.c.run_id == runs.c.id, loops.c.status == number_in(QUEUED))
    .scalar_subquery()
)


def next_loop(new: Any) -> ColumnElement[int]:
    """The loop that an owner can continue, of a run whose columns have these new values."""
    loop_continues = or_(
        loops.c.status != number_in(PROPOSED), new["abort_requested"], ~_is_undecided(new["turn_open"])
    )
    active = (
        select(loops.c.id)
        .where(loops.c.run_id == runs.c.id, loops.c.sequence == new["loop_active"], loop_continues)
        .scalar_subquery()
    )
    zero: ColumnElement[int] = literal_column("0")
    found = case(
        (new["loop_active"] > zero, active),
        (and_(new["loops_queued"] > zero, runs.c.removed_ms == zero), _OLDEST),
        else_=literal_column("NULL"),
    )
    return func.coalesce(found, zero)


_SETTLE: Final = unanswered(
    update(runs)
    .where(runs.c.id == bindparam("run_is"))
    .values(next_loop=next_loop(runs.c), update_ms=bindparam("new_update_ms"))
)


def update_next_loop(connection: Connection, run_id: int, now_ms: int) -> None:
    """Recompute the loop that an owner can continue, after other rows than the run's own were written."""
    connection.execute(_SETTLE, {"run_is": run_id, "new_update_ms": now_ms})

"""Which loop of a run an owner can go on with: kept in the run's row, so that the queue is an index of them.

Theory of operation. `runs.next_loop` says something that follows from the run, its loops and its undecided proposals;
it is settled anew by whatever changes one of these. A run that waits for a decision has none, whatever is queued
behind. Who holds the run is another question: leases end by themselves.
Source: architecture 3 (fair between projects); rows RU109, RU110; docs/adr/0010.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import and_, bindparam, case, exists, func, literal_column, or_, select, update

from turnwright_core.entries import State
from turnwright_core.runs import PROPOSED, QUEUED
from turnwright_store.ports import Connection
from turnwright_store.sql.keys import number_in
from turnwright_store.sql.tables import loops, runs, views

IS_UNDECIDED: Final = exists(
    select(literal_column("1"))
    .select_from(views)
    .where(
        views.c.run_id == runs.c.id,
        views.c.turn == runs.c.turn_open,
        views.c.to_rev.is_(None),
        views.c.state == number_in(State.PROPOSED),
    )
    .correlate(runs)
)
"""A proposal in the open turn of a run waits for a decision."""

_GOES_ON: Final = or_(loops.c.status != number_in(PROPOSED), runs.c.abort_requested, ~IS_UNDECIDED)
_ACTIVE: Final = (
    select(loops.c.id)
    .where(loops.c.run_id == runs.c.id, loops.c.sequence == runs.c.loop_active, _GOES_ON)
    .scalar_subquery()
)
_OLDEST: Final = (
    select(func.min(loops.c.id))
    .where(loops.c.run_id == runs.c.id, loops.c.status == number_in(QUEUED))
    .scalar_subquery()
)
_NEXT: Final = case(
    (runs.c.loop_active > literal_column("0"), _ACTIVE),
    (and_(runs.c.loops_queued > literal_column("0"), runs.c.removed_ms == literal_column("0")), _OLDEST),
    else_=literal_column("NULL"),
)
_SETTLE: Final = (
    update(runs).where(runs.c.id == bindparam("run_is")).values(next_loop=func.coalesce(_NEXT, literal_column("0")))
)


def settle_next_loop(connection: Connection, run_id: int) -> None:
    """Recompute the loop that an owner can continue; after the run's rows were written."""
    connection.execute(_SETTLE, {"run_is": run_id})

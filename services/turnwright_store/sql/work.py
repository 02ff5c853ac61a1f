"""Which runs have work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlalchemy import Connection, and_, bindparam, exists, literal_column, or_, select

from turnwright_store.sql.loops import OPEN_RUNS
from turnwright_store.sql.runs import RUN, RunRow, run_of
from turnwright_store.sql.tables import loops, runs, views

_UNDECIDED: Final = exists(
    select(views.c.id).where(
        views.c.run_id == runs.c.id,
        views.c.turn == runs.c.turn_open,
        views.c.to_rev.is_(None),
        views.c.state == literal_column("2"),
    )
)
_HAS_WORK: Final = or_(
    runs.c.loop_active == 0,
    loops.c.status == literal_column("102"),
    and_(loops.c.status == literal_column("202"), or_(runs.c.abort_requested, ~_UNDECIDED)),
)
_WORK: Final = (
    RUN.join(OPEN_RUNS, OPEN_RUNS.c.run_id == runs.c.id)
    .where(_HAS_WORK)
    .order_by(OPEN_RUNS.c.oldest)
    .limit(bindparam("page"))
)


def list_work(connection: Connection, page: int) -> Iterator[RunRow]:
    """Runs that an owner can go on with, those whose oldest loop waits longest first.

    A run that waits for a decision has none, whatever is queued behind.
    """
    with connection.execute(_WORK, {"page": page}) as rows:
        yield from map(run_of, rows)

"""What waits in the store: loops for an executor, proposals for a decision. Each is the size of a partial index."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from sqlalchemy import Connection, func, select

from turnwright_core.runs import QUEUED
from turnwright_store.sql.inbox import IS_WAITING
from turnwright_store.sql.keys import number_in
from turnwright_store.sql.loops import OPEN_STATUSES
from turnwright_store.sql.tables import loops, views

_QUEUED: Final = select(func.count(), func.min(loops.c.create_ms)).where(
    loops.c.status.in_(OPEN_STATUSES), loops.c.status == number_in(QUEUED)
)
_PROPOSALS: Final = select(func.count()).select_from(views).where(IS_WAITING)


class Backlog(Struct, frozen=True):
    """`oldest_ms` is when the loop that has waited longest was queued; 0: none waits."""

    loops: int = 0
    oldest_ms: int = 0
    proposals: int = 0


def read_backlog(connection: Connection) -> Backlog:
    count, oldest_ms = connection.execute(_QUEUED).one()
    return Backlog(int(count), int(oldest_ms or 0), int(connection.execute(_PROPOSALS).scalar_one()))

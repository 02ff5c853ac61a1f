"""The work queue: runs with work and without an owner, in the order of their claims.

Theory of operation. Fair queueing (round robin) between projects: the first waiting run of a project has the rank of
its number of leased runs, the second one the next rank, and so on; within a rank the longest waiting is first. So the
only run of one project is not behind a thousand queued runs of another one.

An index has the waiting runs of each project in order. The first run of each project is read, and further ones only of
projects that are next again: the cost grows with the number of projects and live leases, not of waiting runs.
Source: architecture 3 (fair between projects); rows RU109, RU110.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import (
    BigInteger,
    Connection,
    Select,
    and_,
    bindparam,
    cast,
    exists,
    func,
    literal_column,
    select,
    update,
)

from turnwright_core.runs import PROPOSED, QUEUED
from turnwright_store.sql.columns import not_zero
from turnwright_store.sql.entries import batched
from turnwright_store.sql.keys import number_in
from turnwright_store.sql.leases import IS_FREE, IS_LEASED
from turnwright_store.sql.loops import OPEN_STATUSES
from turnwright_store.sql.next_loop import IS_UNDECIDED
from turnwright_store.sql.runs import RunRow
from turnwright_store.sql.tables import loops, projects, runs

_LEASED_PROJECT: Final = cast(runs.c.project_id + literal_column("0"), BigInteger)
"""An expression that no index offers in order: planners would walk all runs by project, and few are leased."""

_LEASED: Final = select(_LEASED_PROJECT, func.count()).where(IS_LEASED).group_by(_LEASED_PROJECT)
_IS_WAITING: Final = and_(not_zero(runs.c.next_loop), runs.c.removed_ms == literal_column("0"), IS_FREE)
_FIRST: Final = (
    select(runs.c.id)
    .where(runs.c.project_id == projects.c.id, _IS_WAITING)
    .order_by(runs.c.next_loop)
    .limit(literal_column("1"))
    .correlate(projects)
    .scalar_subquery()
)
_HEADS: Final[Select[Any]] = select(_FIRST, projects.c.name)
_HEADS_FOR: Final = _HEADS.where(projects.c.workspace_id.in_(bindparam("workspaces", expanding=True)))
_QUEUED: Final = select(runs.c.id, runs.c.project_id, runs.c.next_loop, runs.c.alias).where(
    runs.c.id.in_(bindparam("ids", expanding=True))
)
_BEHIND: Final = (
    select(runs.c.next_loop, runs.c.id, runs.c.alias)
    .where(runs.c.project_id == bindparam("project"), runs.c.next_loop > bindparam("after"), _IS_WAITING)
    .order_by(runs.c.next_loop)
    .limit(bindparam("page"))
)
_UNDECIDED: Final = select(func.count()).select_from(runs).where(runs.c.id == bindparam("run_id"), IS_UNDECIDED)

UNAVAILABLE: Final = "workspace_unavailable"
"""Reason of a queued loop whose workspace no living executor has."""

_NO_REASON: Final = bindparam("no_reason", "", type_=loops.c.reason.type)
_STRANDED: Final = (
    select(projects.c.name, runs.c.alias)
    .join(projects, projects.c.id == runs.c.project_id)
    .where(
        runs.c.removed_ms == literal_column("0"),
        runs.c.loop_active == literal_column("0"),
        exists(
            select(loops.c.id).where(
                loops.c.run_id == runs.c.id,
                loops.c.status.in_(OPEN_STATUSES),
                loops.c.status == number_in(QUEUED),
                loops.c.create_ms <= bindparam("before_ms"),
                loops.c.reason == _NO_REASON,
            )
        ),
        projects.c.workspace_id.not_in(bindparam("offered", expanding=True)),
    )
    .order_by(runs.c.id)
    .limit(bindparam("page"))
)
_SAY: Final = (
    update(loops)
    .where(loops.c.run_id == bindparam("run_id_is"), loops.c.status == number_in(QUEUED))
    .values(reason=bindparam("new_reason", type_=loops.c.reason.type), revision=bindparam("new_revision"))
)


class QueuedRun(Struct, frozen=True):
    """A run that waits for an owner."""

    id: int
    project: str
    run: str
    turn: int
    """The rank in the fair queue; the lowest is first."""


_BEHIND_PAGE: Final = 32
"""Runs of one project that are read at once behind its first."""


def list_waiting(connection: Connection, workspaces: Collection[str], grace_ms: int, page: int) -> list[QueuedRun]:
    """Claimable runs, the next one first; `workspaces` empty: of any project."""
    leased: dict[int, int] = dict(connection.execute(_LEASED, {"grace_ms": grace_ms}).all())
    # Turn, loop, then what they are of. A project whose next run is not read yet stands before all of its turn.
    line = [(leased.get(first.project, 0) + 1, loop, first) for loop, first in _heads(connection, workspaces, grace_ms)]
    heapq.heapify(line)
    found: list[QueuedRun] = []
    while line and len(found) < page:
        turn, loop, first = heapq.heappop(line)
        if first.run:
            found.append(QueuedRun(first.run, first.name, first.alias, turn))
            behind = first.behind or _runs_behind(connection, first.project, loop, grace_ms)
            heapq.heappush(line, (turn + 1, 0, replace(first, run=0, behind=behind)))
        elif following := next(first.behind or iter(()), None):
            loop, run, alias = following
            heapq.heappush(line, (turn, loop, replace(first, run=run, alias=alias)))
    return found


def _heads(connection: Connection, workspaces: Collection[str], grace_ms: int) -> Iterator[tuple[int, _Waiting]]:
    """The first waiting run of each project, with its loop."""
    values: dict[str, Any] = {"grace_ms": grace_ms}
    if workspaces:
        values["workspaces"] = sorted(set(workspaces))
    names = {run: name for run, name in connection.execute(_HEADS_FOR if workspaces else _HEADS, values) if run}
    for part in batched(names):
        for run, project, loop, alias in connection.execute(_QUEUED, {"ids": part}):
            yield loop, _Waiting(project, names[run], run, alias)


class _Waiting(Struct, frozen=True):
    """A project in the line, and its next run; 0: it is not read yet."""

    project: int
    name: str
    run: int
    alias: str
    behind: Iterator[tuple[int, int, str]] | None = None

    def __lt__(self, other: _Waiting) -> bool:
        return self.project < other.project


def _runs_behind(connection: Connection, project: int, after: int, grace_ms: int) -> Iterator[tuple[int, int, str]]:
    """Waiting runs of a project after a loop: loop, run, alias."""
    while True:
        values = {"project": project, "after": after, "grace_ms": grace_ms, "page": _BEHIND_PAGE}
        rows = connection.execute(_BEHIND, values).all()
        yield from rows
        if len(rows) < _BEHIND_PAGE:
            return
        after = rows[-1][0]


def has_work(connection: Connection, run: RunRow) -> bool:
    loop = run.active
    if loop is None:
        return run.run.loops_queued > 0
    if loop.status == PROPOSED and not run.abort_requested:
        return not connection.execute(_UNDECIDED, {"run_id": run.id}).scalar_one()
    return True


def list_unclaimable(
    connection: Connection, offered: Collection[str], before_ms: int, page: int
) -> Sequence[tuple[str, str]]:
    """Project and alias of runs whose queued loops wait since before a time for a workspace outside `offered`."""
    values = {"offered": sorted(offered), "before_ms": before_ms, "page": page}
    return [(project, run) for project, run in connection.execute(_STRANDED, values)]


def set_reason_of_queued(connection: Connection, run_id: int, reason: str, revision: int) -> None:
    connection.execute(_SAY, {"run_id_is": run_id, "new_reason": reason, "new_revision": revision})

"""Which runs have work and no owner, in the order in which they are taken.

Theory of operation. Projects take turns: the first waiting run of a project stands behind as many turns as the
project has runs under a living lease, its second one behind one more, and so on; of those at the same turn the one
that waits longest is first. So a thousand queued runs of one project stand at a thousand different turns, and the
one run of another project is among the first.
Source: architecture 3 (fair between projects); rows RU109, RU110.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

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
    or_,
    select,
    update,
)

from turnwright_core.runs import PROPOSED
from turnwright_store.sql.leases import IS_FREE, IS_LEASED
from turnwright_store.sql.loops import OPEN_RUNS, OPEN_STATUSES
from turnwright_store.sql.runs import RunRow
from turnwright_store.sql.tables import loops, projects, runs, views

_IS_UNDECIDED: Final = exists(
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
    and_(loops.c.status == literal_column("202"), or_(runs.c.abort_requested, ~_IS_UNDECIDED)),
)
_LEASED_PROJECT: Final = cast(runs.c.project_id + literal_column("0"), BigInteger)
"""An expression that no index offers in order: planners would walk all runs by project, and few are leased."""

_LEASED: Final = (
    select(_LEASED_PROJECT.label("project_id"), func.count().label("leased"))
    .where(IS_LEASED)
    .group_by(_LEASED_PROJECT)
    .subquery("leased_runs")
)
_TURN: Final = (
    func.row_number().over(partition_by=runs.c.project_id, order_by=OPEN_RUNS.c.oldest)
    + func.coalesce(_LEASED.c.leased, literal_column("0"))
).label("turn")
_WAITING: Final[Select[Any]] = (
    select(runs.c.id, projects.c.name, runs.c.alias, _TURN)
    .select_from(OPEN_RUNS)
    .join(runs, runs.c.id == OPEN_RUNS.c.run_id)
    .join(projects, projects.c.id == runs.c.project_id)
    .outerjoin(_LEASED, _LEASED.c.project_id == runs.c.project_id)
    .outerjoin(loops, and_(loops.c.run_id == runs.c.id, loops.c.sequence == runs.c.loop_active))
    .where(runs.c.removed_ms == literal_column("0"), IS_FREE, _HAS_WORK)
    .order_by(_TURN, OPEN_RUNS.c.oldest)
    .limit(bindparam("page"))
)
_WAITING_FOR: Final = _WAITING.where(projects.c.workspace_id.in_(bindparam("workspaces", expanding=True)))
_UNDECIDED: Final = select(func.count()).select_from(runs).where(runs.c.id == bindparam("run_id"), _IS_UNDECIDED)

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
                loops.c.status == literal_column("100"),
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
    .where(loops.c.run_id == bindparam("run_id_is"), loops.c.status == literal_column("100"))
    .values(reason=bindparam("new_reason", type_=loops.c.reason.type), revision=bindparam("new_revision"))
)


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A run that waits for an owner."""

    id: int
    project: str
    run: str
    turn: int
    """How many runs are before it while projects take turns; the first ones have the lowest."""


def list_waiting(connection: Connection, workspaces: Collection[str], grace_ms: int, page: int) -> list[WaitingRow]:
    """Runs that an owner can go on with and nobody holds, the next one first; `workspaces` empty: of any project.

    A run that waits for a decision has none, whatever is queued behind.
    """
    values: dict[str, Any] = {"grace_ms": grace_ms, "page": page}
    statement = _WAITING
    if workspaces:
        statement, values["workspaces"] = _WAITING_FOR, sorted(set(workspaces))
    return [WaitingRow(*row) for row in connection.execute(statement, values)]


def has_work(connection: Connection, run: RunRow) -> bool:
    """Whether an owner can go on with this run."""
    loop = run.active
    if loop is None:
        return run.run.loops_queued > 0
    if loop.status == PROPOSED and not run.abort_requested:
        return not connection.execute(_UNDECIDED, {"run_id": run.id}).scalar_one()
    return True


def list_stranded(
    connection: Connection, offered: Collection[str], before_ms: int, page: int
) -> Sequence[tuple[str, str]]:
    """Project and alias of runs whose queued loops wait since before a time for a workspace outside `offered`."""
    values = {"offered": sorted(offered), "before_ms": before_ms, "page": page}
    return [(project, run) for project, run in connection.execute(_STRANDED, values)]


def say_of_queued(connection: Connection, run_id: int, reason: str, revision: int) -> None:
    """Write a reason on all queued loops of a run."""
    connection.execute(_SAY, {"run_id_is": run_id, "new_reason": reason, "new_revision": revision})

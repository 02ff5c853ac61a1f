"""Rows for the control of runs: aliases, settings, spend, overviews of a project's runs.

Of aliases also when they began and ceased to name runs, as far as the rows of runs do not tell it: a run that is
removed frees its alias at once and its row goes later, one that is renamed keeps nothing of its old name, and one that
is imported is as old as its document.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct
from sqlalchemy import Connection, Text, and_, bindparam, cast, delete, func, literal_column, or_, select, update
from turnwright_values.store import TitleCall
from turnwright_values.types import RunSettings, TurnResult

from turnwright_core.runs import RUNNING
from turnwright_store.domain.runs_cursor import RunMark
from turnwright_store.domain.viewers import viewer_in
from turnwright_store.ports import Transaction
from turnwright_store.sql.clauses import insertion
from turnwright_store.sql.columns import not_zero
from turnwright_store.sql.inbox import HAS_WAITING, IS_WAITING
from turnwright_store.sql.registry import ProjectRow
from turnwright_store.sql.runs import (
    CONFIGURE,
    RUN,
    RunRow,
    execute_seen,
    run_of,
    seen,
    setting_values,
    title_call_json,
)
from turnwright_store.sql.tables import agents, run_names, runs, scopes, turns, views
from turnwright_store.sql.turns import RESULT

_FAMILY_ALIAS: Final = select(runs.c.id).where(
    or_(
        and_(not_zero(runs.c.lineage), runs.c.lineage == bindparam("family")),
        runs.c.id == bindparam("family"),
    ),
    or_(
        runs.c.alias == bindparam("wanted"),
        runs.c.alias == cast(bindparam("wanted"), Text) + literal_column("'~'") + cast(runs.c.id, Text),
    ),
)
_RENAME: Final = update(runs).where(runs.c.id == bindparam("run_is")).values(alias=bindparam("new_alias"))
_WRITE_TITLE_CALL: Final = (
    update(runs).where(runs.c.id == bindparam("run_is")).values(title_call=bindparam("new_title_call"))
)
_RENAME_KEY: Final = update(scopes).where(scopes.c.id == bindparam("scope_is")).values(key=bindparam("new_key"))
_RENAME_ORIGIN: Final = (
    update(runs)
    .where(
        runs.c.lineage == bindparam("family"),
        not_zero(runs.c.lineage),
        runs.c.forked_from_run == bindparam("old_alias"),
        runs.c.id > bindparam("run_is"),
    )
    .values(forked_from_run=bindparam("new_alias"))
)
_one = select(literal_column("1").label("one")).subquery("one")
_HAS_AGENTS: Final = select(agents.c.id).where(agents.c.run_id == bindparam("run_is")).exists()
# Those of no loop came with a document: somebody else has paid for them.
_OF_LOOPS: Final = and_(turns.c.run_id == bindparam("run_is"), turns.c.loop > literal_column("0"))
_SPENT: Final = (
    select(turns.c.loop, turns.c.result, turns.c.begin_ms, turns.c.end_ms, _HAS_AGENTS)
    # A row also where there is no turn.
    .select_from(_one.outerjoin(turns, _OF_LOOPS))
    .order_by(turns.c.number)
)
_OF_PROJECT: Final = seen(
    RUN.where(runs.c.project_id == bindparam("project"), runs.c.id < bindparam("before"))
    .order_by(runs.c.id.desc())
    .limit(bindparam("page"))
)
_OF_SCOPES: Final = seen(
    RUN.where(runs.c.project_id == bindparam("project"), runs.c.scope_id.in_(bindparam("scopes", expanding=True)))
)
_STANDS: Final = seen(
    select(runs.c.scope_id, runs.c.alias, runs.c.revision, runs.c.status, runs.c.create_ms, runs.c.update_ms).where(
        runs.c.project_id == bindparam("project"), runs.c.removed_ms == literal_column("0")
    )
)
_PROPOSED: Final = (
    select(views.c.run_id, func.count())
    .where(views.c.run_id.in_(bindparam("ids", expanding=True)), IS_WAITING)
    .group_by(views.c.run_id)
)
_PROPOSED_OF_PROJECT: Final = (
    select(runs.c.scope_id, func.count())
    .select_from(views)
    .join(runs, runs.c.id == views.c.run_id)
    .where(runs.c.project_id == bindparam("project"), HAS_WAITING, IS_WAITING)
    .group_by(runs.c.scope_id)
)


def family_had_alias(connection: Connection, run: RunRow, alias: str) -> bool:
    """Whether a run that is related by forks has an alias, or had it when it was removed."""
    values = {"family": run.lineage or run.id, "wanted": alias}
    return connection.execute(_FAMILY_ALIAS, values).first() is not None


def rename(connection: Connection, run: RunRow, alias: str) -> None:
    """Rename a run, also as the parent of its forks, so that their inherited turns are found."""
    old = run.run.run
    connection.execute(_RENAME, {"run_is": run.id, "new_alias": alias})
    connection.execute(_RENAME_KEY, {"scope_is": run.scope, "new_key": f"run:{run.project_id}:{alias}"})
    family = {"family": run.lineage or run.id, "old_alias": old, "run_is": run.id, "new_alias": alias}
    connection.execute(_RENAME_ORIGIN, family)


def configure(connection: Connection, run_id: int, settings: RunSettings, model_loop: int) -> None:
    connection.execute(CONFIGURE, {"run_is": run_id, "model_loop": model_loop, **setting_values(settings)})


def write_title_call(connection: Connection, run_id: int, call: TitleCall) -> None:
    connection.execute(_WRITE_TITLE_CALL, {"run_is": run_id, "new_title_call": title_call_json(call)})


EndedTurn = tuple[int, TurnResult | None, int]
"""Loop, result and duration in milliseconds of a turn; None: its call has not ended."""


def ended_turns(connection: Connection, run_id: int) -> tuple[list[EndedTurn], bool]:
    """The turns of a run, and whether it has started agents."""
    rows = connection.execute(_SPENT, {"run_is": run_id}).all()
    ended = [
        (loop, RESULT.decode(result) if result else None, max(0, end_ms - begin_ms))
        for loop, result, begin_ms, end_ms, _ in rows
        if loop is not None
    ]
    return ended, bool(rows[0][-1])


def runs_before(connection: Connection, owner: ProjectRow, before: int, page: int) -> list[RunRow]:
    """Runs of a project by their ids, those below one, the latest made first."""
    values = {"project": owner.id, "before": before, "page": page}
    return [run_of(row) for row in execute_seen(connection, _OF_PROJECT, values, viewer_in(owner.project.name))]


def runs_of_scopes(connection: Connection, owner: ProjectRow, wanted: Collection[int]) -> list[RunRow]:
    """The runs of a project among the owners of these scopes, in the order in which they were written."""
    values = {"project": owner.id, "scopes": sorted(wanted)}
    found = map(run_of, execute_seen(connection, _OF_SCOPES, values, viewer_in(owner.project.name)))
    return sorted(found, key=lambda row: (row.run.update_ms, row.id))


class RunStand(Struct, frozen=True):
    """How a run stands, without what an overview says of it."""

    scope: int
    alias: str
    mark: RunMark
    is_running: bool
    create_ms: int
    update_ms: int


def run_stands(connection: Connection, owner: ProjectRow) -> list[RunStand]:
    values = {"project": owner.id}
    waiting: dict[int, int] = dict(connection.execute(_PROPOSED_OF_PROJECT, values).all())
    rows = execute_seen(connection, _STANDS, values, viewer_in(owner.project.name))
    return [
        RunStand(scope, alias, RunMark(revision, waiting.get(scope, 0)), status == RUNNING, create_ms, update_ms)
        for scope, alias, revision, status, create_ms, update_ms in rows
    ]


def count_proposals(connection: Connection, ids: Sequence[int]) -> dict[int, int]:
    """The number of waiting proposals by run; runs without any are left out."""
    if not ids:
        return {}
    return {int(row[0]): int(row[1]) for row in connection.execute(_PROPOSED, {"ids": list(ids)})}


_ADD: Final = insertion(run_names)
_SINCE: Final = select(run_names.c.alias).where(
    run_names.c.project_id == bindparam("project"), run_names.c.change_ms >= bindparam("since_ms")
)
_OLD: Final = select(run_names.c.id).where(run_names.c.change_ms < bindparam("before_ms")).limit(bindparam("rows_max"))
_DROP: Final = delete(run_names).where(run_names.c.id.in_(_OLD))


def add_name_change(tx: Transaction, project_id: int, *aliases: str) -> None:
    """Note that each of these names a run from now on, or none any more."""
    values = [{"project_id": project_id, "alias": alias, "change_ms": tx.now_ms} for alias in aliases]
    tx.connection.execute(_ADD, values)


def names_since(connection: Connection, project_id: int, since_ms: int) -> set[str]:
    """Aliases that began or ceased to name a run, however often."""
    return set(connection.execute(_SINCE, {"project": project_id, "since_ms": since_ms}).scalars())


def drop_name_changes(connection: Connection, before_ms: int, rows_max: int) -> int:
    """Delete old ones, a bounded number; returns how many."""
    return connection.execute(_DROP, {"before_ms": before_ms, "rows_max": rows_max}).rowcount

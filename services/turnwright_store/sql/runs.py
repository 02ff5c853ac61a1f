"""Rows of runs: read with everything a request needs in one statement, written back as one row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct, json
from msgspec.structs import asdict, replace
from sqlalchemy import (
    Connection,
    Select,
    Update,
    and_,
    bindparam,
    case,
    insert,
    literal_column,
    select,
    update,
)
from turnwright_values.store import TitleCall
from turnwright_values.types import (
    AgentOrigin,
    CallStyle,
    Cursor,
    ForkOrigin,
    Loop,
    LoopSettings,
    Place,
    Run,
    RunPlace,
    RunSettings,
)

from turnwright_core.errors import run_not_found
from turnwright_store.domain.viewers import viewer_in
from turnwright_store.ports import Transaction
from turnwright_store.sql.clauses import parameters, unanswered
from turnwright_store.sql.loops import LOOP_COLUMNS, budget_json, budget_of, loop_of, settings_of
from turnwright_store.sql.next_loop import next_loop
from turnwright_store.sql.registry import ProjectRow, get_project
from turnwright_store.sql.scopes import ScopePosition, bump_if_unchanged
from turnwright_store.sql.tables import loops, projects, quotas, runs, scopes, webhooks


class RunHead(Struct, frozen=True):
    """What most requests need of a run: its keys, the revisions of the scopes that it reads, what writes depend on."""

    id: int
    project_id: int
    project: str
    alias: str
    scope: int
    project_scope: int
    global_scope: int
    revision_run: int
    revision_project: int
    revision_global: int
    turn: int
    """Number of the latest turn; 0 before the first."""
    turn_open: int
    """Number of the turn that has begun and not ended; 0: none."""
    loop_active: int
    """Sequence of the loop that is running or waiting; 0: none."""
    abort_requested: bool
    epoch: int
    positions: int
    """The last place that was given in the timeline of its scope."""
    has_quotas: bool
    """Whether there are quotas, which the run may be under."""
    has_webhooks: bool
    """Whether there are webhooks, which may be told of the run."""
    asked_by: str | None
    """Who asked for its active loop, as stored (domain.viewers); None or empty: there is none, or nobody knows."""

    def cursor(self, incarnation: str) -> Cursor:
        return Cursor(incarnation, self.revision_run, self.revision_project, self.revision_global)

    def scope_key(self, scope: int) -> str:
        """How the contract writes a scope that this run reads."""
        if scope == self.global_scope:
            return "global"
        return f"project:{self.project_id}" if scope == self.project_scope else f"run:{self.id}"


S = TypeVar("S", bound=RunHead)


def with_revisions(run: S, revision: int, positions: int, project: int, global_: int) -> S:
    return replace(run, revision_run=revision, positions=positions, revision_project=project, revision_global=global_)


class RunRow(RunHead, frozen=True):
    """All columns of a run, with its loop and scopes."""

    root: str
    workspace_id: str
    rule_changes: int
    """How often approval rules of its project have changed; 0: there are none."""
    loops: int
    """Sequence of the latest loop; 0 before the first."""
    lineage: int
    """Id of the eldest run of its family; 0 for a run that is no fork."""
    lease_owner: str
    """Who claimed it last; empty once it was given back."""
    lease_address: str
    lease_expires_ms: int
    """When the lease ends, by the database's clock."""
    model_loop: int
    """Sequence of the latest loop when the model was set last; 0: no loop was there, or none was set."""
    asked: LoopSettings | None
    """Of a fork, what was asked of the loop that it goes on from."""
    title_call: TitleCall | None
    """The model call for its title; None before that."""
    by: str
    """Who created it; empty for runs of earlier releases."""
    run: Run

    @property
    def private_to(self) -> str | None:
        """For whom alone it is there, beside those with ADMIN; None: it is not private."""
        return self.by if self.run.settings.private else None

    @property
    def active(self) -> Loop | None:
        """The loop that is running or waiting."""
        return self.run.loop if self.loop_active else None


_project_scope: Final = scopes.alias("project_scope")
_global_scope: Final = scopes.alias("global_scope")

_SHARED_COLUMNS: Final = (
    runs.c.id,
    runs.c.project_id,
    projects.c.name,
    runs.c.alias,
    runs.c.scope_id,
    projects.c.scope_id,
    _global_scope.c.id,
    scopes.c.revision,
    _project_scope.c.revision,
    _global_scope.c.revision,
    runs.c.turn,
    runs.c.turn_open,
    runs.c.loop_active,
    runs.c.abort_requested,
    runs.c.lease_epoch,
    scopes.c.positions,
    select(quotas.c.id).exists(),
    select(webhooks.c.id).exists(),
)
_ASKED_BY: Final = (
    select(loops.c.by).where(loops.c.run_id == runs.c.id, loops.c.sequence == runs.c.loop_active).scalar_subquery()
)
_HEAD_COLUMNS: Final = (*_SHARED_COLUMNS, _ASKED_BY)
_COLUMNS: Final = (
    *_SHARED_COLUMNS,
    case((runs.c.loop_active > 0, loops.c.by)),
    projects.c.root,
    projects.c.workspace_id,
    projects.c.rule_changes,
    runs.c.loops,
    runs.c.lineage,
    runs.c.lease_owner,
    runs.c.lease_address,
    runs.c.lease_expires_ms,
    runs.c.model_loop,
    runs.c.asked,
    runs.c.title_call,
    runs.c.by,
    runs.c.model,
    runs.c.temperature,
    runs.c.persona,
    runs.c.context_limit,
    runs.c.budget,
    runs.c.yolo,
    runs.c.calls,
    runs.c.title,
    runs.c.private,
    runs.c.place,
    runs.c.place_name,
    runs.c.place_parent,
    runs.c.status,
    runs.c.summary,
    runs.c.loops_queued,
    runs.c.revision,
    runs.c.create_ms,
    runs.c.update_ms,
    runs.c.forked_from_run,
    runs.c.forked_from_turn,
    runs.c.parent_run,
    runs.c.parent_name,
    runs.c.parent_depth,
)
BRANCHES: Final = "turnwright"
"""Where the branches of runs stand in the repositories of projects."""

_CURRENT: Final = len(_HEAD_COLUMNS)
_LOOP_AT: Final = len(_COLUMNS)

_SHOWN_LOOP: Final = case((runs.c.loop_active > 0, runs.c.loop_active), else_=runs.c.loops)
"""Sequence of the loop that a run shows: the active one, else the latest."""


def _with_scopes(*columns: Any) -> Select[Any]:
    """Runs beside their project and the scopes that they read; those that were removed are no runs any more."""
    return (
        select(*columns)
        .join(projects, projects.c.id == runs.c.project_id)
        .join(scopes, scopes.c.id == runs.c.scope_id)
        .join(_project_scope, _project_scope.c.id == projects.c.scope_id)
        .join(_global_scope, _global_scope.c.key == "global")
        .where(runs.c.removed_ms == literal_column("0"))
    )


RUN: Final[Select[Any]] = _with_scopes(*_COLUMNS, *LOOP_COLUMNS).outerjoin(
    loops, and_(loops.c.run_id == runs.c.id, loops.c.sequence == _SHOWN_LOOP)
)
"""Runs with everything that is known of them."""

_IS_NAMED: Final = and_(projects.c.name == bindparam("project"), runs.c.alias == bindparam("alias"))
IS_SEEN: Final = (runs.c.private == literal_column("0")) | (runs.c.by == bindparam("viewer"))
"""Whether a run is there for who does not see the private runs of others."""

Seen = tuple[Select[Any], Select[Any]]
"""A statement for who sees all runs, and the same one for everybody else."""


def seen(statement: Select[Any]) -> Seen:
    return statement, statement.where(IS_SEEN)


def execute_seen(connection: Connection, statement: Seen, values: dict[str, Any], viewer: str | None) -> Any:
    """`viewer`: whose private runs are there; None: everybody's."""
    whole, part = statement
    return (
        connection.execute(whole, values) if viewer is None else connection.execute(part, {**values, "viewer": viewer})
    )


_BY_ALIAS: Final = seen(RUN.where(_IS_NAMED))
_HEAD_BY_ALIAS: Final = seen(_with_scopes(*_HEAD_COLUMNS).where(_IS_NAMED))
_IS_TAKEN: Final = (
    select(runs.c.id)
    .join(projects, projects.c.id == runs.c.project_id)
    .where(_IS_NAMED, runs.c.removed_ms == literal_column("0"))
)
_PAGE: Final = seen(
    RUN.where(
        runs.c.project_id == bindparam("project"),
        (runs.c.update_ms < bindparam("before_ms"))
        | ((runs.c.update_ms == bindparam("before_ms")) & (runs.c.id < bindparam("before_id"))),
    )
    .order_by(runs.c.update_ms.desc(), runs.c.id.desc())
    .limit(bindparam("page"))
)
_MOVED: Final = seen(
    RUN.where(
        runs.c.project_id == bindparam("project"),
        runs.c.id < bindparam("before_id"),
        runs.c.create_ms <= bindparam("top_ms"),
        (runs.c.update_ms > bindparam("top_ms"))
        | ((runs.c.update_ms == bindparam("top_ms")) & (runs.c.id > bindparam("top_id"))),
    )
    .order_by(runs.c.id.desc())
    .limit(bindparam("page"))
)
_BY_IDS: Final = RUN.where(runs.c.id.in_(bindparam("ids", expanding=True)))
_PLACES: Final = select(runs.c.place_name).where(
    runs.c.place_name.in_(bindparam("names", expanding=True)),
    runs.c.place_name != literal_column("''"),
    runs.c.removed_ms == literal_column("0"),
)
CONFIGURE: Final = update(runs).where(runs.c.id == bindparam("run_is"))
_ADD: Final = insert(runs).returning(runs.c.id)
_CONTINUED: Final = ("turn", "revision", "update_ms", "turn_open")
"""What changes of a run while the same loop is running: its status not, so that no trigger looks at that."""

_WRITTEN: Final = parameters(
    *_CONTINUED, "status", "loops_queued", "summary", "loops", "loop_active", "abort_requested"
)
_BY_ID: Final = unanswered(update(runs).where(runs.c.id == bindparam("run_is")))
WRITE: Final = _BY_ID.values({**_WRITTEN, "next_loop": next_loop(_WRITTEN)})
WRITE_CONTINUED: Final = _BY_ID.values(parameters(*_CONTINUED))
"""Where the same loop is still running, and nothing else of the run has changed."""

_LEASE: Final = ("lease_owner", "lease_address", "lease_expires_ms")
WRITE_CLAIMED: Final = WRITE.values(lease_epoch=bindparam("epoch"), **parameters(*_LEASE))
"""Where its lease is new."""


MARK_EVERY_MS: Final = 60 * 60 * 1000
"""Maximum lag of the stored time of a run's last write; only retention uses it, which counts in days."""

_MARK_WRITTEN: Final = unanswered(
    update(runs)
    .where(runs.c.id == bindparam("run_id"), runs.c.update_ms < bindparam("before_ms"))
    .values(update_ms=bindparam("new_update_ms"))
)


def run_of(row: Sequence[Any]) -> RunRow:
    current, more = row[:_CURRENT], row[_CURRENT:_LOOP_AT]
    project, alias, turn = current[2], current[3], current[10]
    place: Sequence[Any]
    *place, asked, call, by, model, temperature, persona, limit, budget, yolo, calls, title, private, where, name, \
        place_parent, status, summary, queued, rev, made, written, parent, parent_turn, above, agent, \
        depth = more  # fmt: skip
    run = Run(
        project,
        alias,
        RunSettings(
            model,
            temperature,
            persona,
            limit,
            budget_of(budget),
            bool(yolo),
            CallStyle(calls),
            title,
            bool(private),
            Place(where),
        ),
        status,
        turn,
        loop_of(row[_LOOP_AT:]),
        summary,
        queued,
        rev,
        made,
        written,
        ForkOrigin(parent, parent_turn) if parent else None,
        parent=AgentOrigin(above, agent, depth) if above else None,
        place=RunPlace(name, place_parent, f"{BRANCHES}/{name}") if name else None,
    )
    return RunRow(*(*current, *place, settings_of(asked), _TITLE_CALL.decode(call) if call else None, by, run))


def find_run(connection: Connection, project: str, alias: str) -> RunRow | None:
    """A run by project name and alias; None where there is none for whom the work is done."""
    named = {"project": project, "alias": alias}
    row = execute_seen(connection, _BY_ALIAS, named, viewer_in(project)).one_or_none()
    return run_of(row) if row else None


def is_taken(connection: Connection, project: str, alias: str) -> bool:
    """Whether an alias names a run, for whomever that is there."""
    return connection.execute(_IS_TAKEN, {"project": project, "alias": alias}).first() is not None


def get_run(connection: Connection, project: str, alias: str) -> RunRow:
    """A run by project name and alias. Raises PROJECT_NOT_FOUND, RUN_NOT_FOUND."""
    found = find_run(connection, project, alias)
    if found is None:
        get_project(connection, project)
        raise run_not_found(project, alias)
    return found


def get_run_head(connection: Connection, project: str, alias: str) -> RunHead:
    """The head of a run, by project name and alias. Raises PROJECT_NOT_FOUND, RUN_NOT_FOUND."""
    named = {"project": project, "alias": alias}
    row = execute_seen(connection, _HEAD_BY_ALIAS, named, viewer_in(project)).one_or_none()
    if row is None:
        get_project(connection, project)
        raise run_not_found(project, alias)
    return RunHead(*row)


def load_runs(connection: Connection, ids: Sequence[int]) -> list[RunRow]:
    """Runs by their ids, in this order; those that are gone are left out."""
    found = {row.id: row for row in map(run_of, connection.execute(_BY_IDS, {"ids": list(ids)}))}
    return [found[one] for one in ids if one in found]


def find_places(connection: Connection, names: Sequence[str]) -> list[str]:
    """Those of the names that are places of runs."""
    return [name for (name,) in connection.execute(_PLACES, {"names": list(names)})]


def list_runs(connection: Connection, owner: ProjectRow, before: tuple[int, int], page: int) -> Iterator[RunRow]:
    """Runs of a project, latest written first, those before (update_ms, id)."""
    values = {"project": owner.id, "before_ms": before[0], "before_id": before[1], "page": page}
    with execute_seen(connection, _PAGE, values, viewer_in(owner.project.name)) as rows:
        yield from map(run_of, rows)


def list_moved(
    connection: Connection, owner: ProjectRow, top: tuple[int, int], before: int, page: int
) -> Iterator[RunRow]:
    """Runs that were there when `top` (update_ms, id) was the first of all, and were written since; latest first."""
    values = {"project": owner.id, "top_ms": top[0], "top_id": top[1], "before_id": before, "page": page}
    with execute_seen(connection, _MOVED, values, viewer_in(owner.project.name)) as rows:
        yield from map(run_of, rows)


_TITLE_CALL: Final = json.Decoder(TitleCall)


def title_call_json(call: TitleCall) -> str:
    return json.encode(call).decode()


def setting_values(settings: RunSettings) -> dict[str, Any]:
    return {
        **asdict(settings),
        "budget": budget_json(settings.budget),
        "calls": int(settings.calls),
        "private": int(settings.private),
        "place": int(settings.place),
    }


def add_run(connection: Connection, project_id: int, scope: int, run: Run, by: str) -> int:
    values = {
        "project_id": project_id,
        "scope_id": scope,
        "alias": run.run,
        "by": by,
        "place_name": run.place.name if run.place else "",
        **{name: getattr(run, name) for name in ("status", "revision", "create_ms", "update_ms")},
        **setting_values(run.settings),
    }
    return int(connection.execute(_ADD, values).scalar_one())


def write_run(tx: Transaction, row: RunRow, statement: Update = WRITE) -> RunRow:
    """Store the columns of a run that can change, at the revision of the row; returns the row.

    Its loops must be written before.
    """
    run = replace(row.run, revision=row.revision_run, update_ms=tx.now_ms)
    values = {**asdict(row), **asdict(run)}
    written = {f"new_{column}": values[column] for column in (*_WRITTEN, *_LEASE)}
    tx.connection.execute(statement, {"run_is": row.id, "epoch": row.epoch, **written})
    return replace(row, run=run)


def mark_written(connection: Connection, run_id: int, now_ms: int) -> None:
    """Update the time of a run's last write, if it is due, for writes that change nothing else of its row."""
    values = {"run_id": run_id, "before_ms": now_ms - MARK_EVERY_MS, "new_update_ms": now_ms}
    connection.execute(_MARK_WRITTEN, values)


def bump_revision(tx: Transaction, run: RunRow) -> RunRow:
    """The run at the revision that this transaction gives its scope."""
    if run.scope not in tx.bumped:
        bump_if_unchanged(tx, run.scope, ScopePosition(run.revision_run, run.positions), 0)
    revision = tx.bumped[run.scope]
    return run if run.revision_run == revision else replace(run, revision_run=revision)

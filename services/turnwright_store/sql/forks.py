"""Queries of forks and of file adoption: copying views of another run, and finding where inherited turns are stored.

A fork copies rows of views but no content: the copies refer to versions, which never change. Turns and packets are not
copied either; a query for an inherited turn goes to the run that had it. Source: architecture 3 (forks); rows RU060,
RU219; C18.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    Text,
    bindparam,
    case,
    cast,
    desc,
    func,
    insert,
    literal_column,
    or_,
    select,
    union_all,
)
from turnwright_values.types import State, ViewFilter, Visibility

from turnwright_core.runs import QUEUED
from turnwright_store.sql.columns import not_zero
from turnwright_store.sql.entries import BODY_HASH, ENTRY, HEAD, IS_CURRENT, seen_now
from turnwright_store.sql.runs import RunHead
from turnwright_store.sql.tables import entries, runs, scopes, turns, versions, views
from turnwright_store.sql.views import condition

_UNSETTLED: Final[list[ColumnElement[int]]] = [
    literal_column(str(int(state))) for state in State if state and not state.is_settled
]
_IS_UNSETTLED: Final = views.c.state.in_(_UNSETTLED)

COPIED_COLUMNS: Final[dict[str, ColumnElement[Any]]] = {
    "run_id": cast(bindparam("child"), BigInteger),
    "from_rev": cast(bindparam("first"), BigInteger),
    # Open entries of the parent have no owner in the child that could close them.
    "state": case((_IS_UNSETTLED, literal_column(str(int(State.CANCELLED)))), else_=views.c.state),
    "outcome": case((_IS_UNSETTLED, literal_column("'aborted:499'")), else_=views.c.outcome),
    **{
        name: views.c[name]
        for name in (
            "entry_id", "path", "version_rev", "chunk_bytes", "visibility", "turn", "loop", "position", "write_count",
            "create_ms",
        )
    },
}  # fmt: skip


def seen_at(at: ColumnElement[int], *more: ColumnElement[bool]) -> tuple[Select[Any], Select[Any]]:
    """Copies of what a run saw at a revision of its scope and sees still, and of what has ended since."""
    seen = select(*(value.label(name) for name, value in COPIED_COLUMNS.items())).where(
        views.c.run_id == bindparam("source"), views.c.from_rev <= at, *more
    )
    # Two queries, so that each uses the index for its half of the intervals.
    return seen.where(views.c.to_rev.is_(None)), seen.where(views.c.to_rev > at)


_COPY: Final = insert(views).from_select(list(COPIED_COLUMNS), union_all(*seen_at(bindparam("revision"))))

_OPEN_RECORDS: Final = select(views.c.path).where(
    views.c.run_id == bindparam("source"),
    views.c.from_rev <= bindparam("revision"),
    or_(views.c.to_rev.is_(None), views.c.to_rev > bindparam("revision")),
    views.c.path >= literal_column("'log://'"),
    views.c.path < literal_column("'log:/0'"),
    _IS_UNSETTLED,
)

_CHILD: Final[dict[str, ColumnElement[Any]]] = {
    "project_id": runs.c.project_id,
    "scope_id": cast(bindparam("scope"), BigInteger),
    "alias": cast(bindparam("new_alias"), Text),
    "status": literal_column(str(QUEUED)),
    "model": runs.c.model,
    "temperature": runs.c.temperature,
    "persona": runs.c.persona,
    "context_limit": runs.c.context_limit,
    "budget": runs.c.budget,
    "calls": runs.c.calls,
    "turn": cast(bindparam("new_turn"), BigInteger),
    # Inherited views are stamped with the parent's loops: the child's own ones continue from there.
    "loops": runs.c.loops,
    "asked": cast(bindparam("new_asked"), Text),
    "revision": cast(bindparam("first"), BigInteger),
    "create_ms": cast(bindparam("now_ms"), BigInteger),
    "update_ms": cast(bindparam("now_ms"), BigInteger),
    "forked_from_run": runs.c.alias,
    "forked_from_turn": cast(bindparam("origin_turn"), BigInteger),
    "by": cast(bindparam("new_by"), Text),
    "private": runs.c.private,
    "place": runs.c.place,
    "place_name": case((runs.c.place_name != "", cast(bindparam("new_place"), Text)), else_=""),
    "place_parent": runs.c.place_name,
    "lineage": case((runs.c.lineage > 0, runs.c.lineage), else_=runs.c.id),
}
_ADD: Final = (
    insert(runs)
    .from_select(
        list(_CHILD),
        select(*(value.label(name) for name, value in _CHILD.items())).where(runs.c.id == bindparam("parent")),
    )
    .returning(runs.c.id)
)
_POSITIONS: Final = (
    select(scopes.c.positions).join(runs, runs.c.scope_id == scopes.c.id).where(runs.c.id == bindparam("run"))
)
_LATEST_ENDED: Final = (
    select(turns.c.number)
    .where(turns.c.run_id == bindparam("run"), turns.c.end_ms > 0)
    .order_by(turns.c.number.desc())
    .limit(1)
)
_ENDED: Final = select(turns.c.revision, turns.c.end_project_rev, turns.c.end_global_rev).where(
    turns.c.run_id == bindparam("run"), turns.c.number == bindparam("turn"), turns.c.end_ms > 0
)
_ORIGIN: Final = select(runs.c.forked_from_run, runs.c.forked_from_turn, runs.c.lineage).where(
    runs.c.id == bindparam("run")
)


def of_family(statement: Select[Any]) -> CompoundSelect[Any]:
    """The query for the oldest run of a family and all of its descendants."""
    # Literals and two statements, so that planners use the partial indexes.
    return union_all(
        statement.where(runs.c.lineage == bindparam("family"), not_zero(runs.c.lineage)),
        statement.where(runs.c.id == bindparam("family")),
    )


_PARENT: Final = (
    of_family(
        select(runs.c.id, runs.c.removed_ms).where(
            # The alias was free for others once its run was removed, but the run that had it then is older than the
            # child.
            runs.c.id < bindparam("child"),
            or_(
                runs.c.alias == bindparam("alias"),
                runs.c.alias == cast(bindparam("alias"), Text) + literal_column("'~'") + cast(runs.c.id, Text),
            ),
        )
    )
    .order_by(desc("id"))
    .limit(1)
)


class TurnHome(Struct, frozen=True):
    """Where an ended turn is stored: a run, and the revisions of its scopes at the turn's end."""

    run_id: int
    revision: int
    project: int
    global_: int


def find_turn_home(connection: Connection, run_id: int, number: int) -> TurnHome | None:
    """Where a run's own or inherited ended turn is stored; None if there is none, or its run was removed."""
    home = run_of_turn(connection, run_id, number)
    if home is None:
        return None
    ended = connection.execute(_ENDED, {"run": home, "turn": number}).one_or_none()
    return None if ended is None else TurnHome(home, *ended)


def run_of_turn(connection: Connection, run_id: int, number: int) -> int | None:
    """Id of the run that a turn belongs to: the run itself, or the one it inherited the turn from.

    None if that one was removed. Whether there is such a turn is not checked.
    """
    removed_ms = 0
    while True:
        alias, turn, lineage = connection.execute(_ORIGIN, {"run": run_id}).one()
        if not lineage or number > turn:
            return None if removed_ms else run_id
        values = {"child": run_id, "family": lineage, "alias": alias}
        parent = connection.execute(_PARENT, values).one_or_none()
        if parent is None:
            return None
        run_id, removed_ms = parent


def latest_ended(connection: Connection, run_id: int) -> int:
    """Number of the latest ended turn of a run, possibly inherited; 0: none."""
    own = connection.execute(_LATEST_ENDED, {"run": run_id}).scalar_one_or_none()
    if own is not None:
        return int(own)
    return int(connection.execute(_ORIGIN, {"run": run_id}).one()[1])


def positions_of(connection: Connection, run_id: int) -> int:
    return int(connection.execute(_POSITIONS, {"run": run_id}).scalar_one())


class ForkedRun(Struct, frozen=True):
    """The new properties of a fork; the others are the parent's."""

    scope: int
    alias: str
    turn: int
    """Number of the latest inherited turn."""
    origin_turn: int
    """The ended turn after which it begins."""
    first: int
    """Revision of its scope at which it begins."""
    now_ms: int
    asked: str
    """What its loops inherit, as it is stored; empty for nothing."""
    by: str
    """Who forks it."""
    place: str
    """Name of its own directory, if its parent has one."""


def add_child(connection: Connection, parent: int, child: ForkedRun) -> int:
    """The id of a new run with the settings of its parent, but for its grants."""
    values = {
        "parent": parent,
        "scope": child.scope,
        "new_alias": child.alias,
        "new_turn": child.turn,
        "origin_turn": child.origin_turn,
        "first": child.first,
        "now_ms": child.now_ms,
        "new_asked": child.asked,
        "new_by": child.by,
        "new_place": child.place,
    }
    return int(connection.execute(_ADD, values).scalar_one())


def open_records(connection: Connection, source: int, revision: int) -> list[str]:
    """Paths of the records that had not ended for a run at a revision of its scope."""
    found = connection.execute(_OPEN_RECORDS, {"source": source, "revision": revision})
    return [path for (path,) in found]


def copy_views(connection: Connection, source: int, child: int, first: int, revision: int) -> None:
    """Copy what a run saw at a revision of its scope to a child."""
    connection.execute(_COPY, {"source": source, "child": child, "first": first, "revision": revision})


_STORED: Final = versions.c.stored_bytes == versions.c.body_size_bytes + views.c.chunk_bytes
_SEEN: Final = (
    seen_now(views.c.path, case((_STORED, BODY_HASH))).where(condition(ViewFilter.FILES)).order_by(views.c.path)
)


_LIKE_RUN: Final = (
    select(runs.c.id)
    .where(
        runs.c.project_id == bindparam("project"),
        runs.c.alias == bindparam("like_run"),
        runs.c.removed_ms == literal_column("0"),
    )
    .scalar_subquery()
)


def _given(name: str) -> ColumnElement[int]:
    return cast(bindparam(name), BigInteger)


_ADOPTED: Final[dict[str, ColumnElement[Any]]] = {
    "run_id": _given("child"),
    "entry_id": views.c.entry_id,
    "path": views.c.path,
    "from_rev": _given("new_revision"),
    "visibility": literal_column(str(int(Visibility.ARCHIVED))),
    "state": literal_column(str(int(State.RESOLVED))),
    "turn": _given("new_turn"),
    "loop": _given("new_loop"),
    "position": _given("new_positions") + func.row_number().over(order_by=views.c.path),
    "write_count": literal_column("1"),
    "create_ms": _given("new_now_ms"),
}


def _of_source(*columns: Any) -> Any:
    return (
        select(*columns)
        .select_from(views)
        .join(entries, ENTRY)
        .where(
            views.c.run_id == _LIKE_RUN,
            IS_CURRENT,
            entries.c.scope_id == bindparam("project_scope"),
            condition(ViewFilter.FILES),
        )
    )


_ADOPT: Final = insert(views).from_select(
    list(_ADOPTED), _of_source(*(value.label(name) for name, value in _ADOPTED.items()))
)
_WHOLE: Final = versions.c.stored_bytes == versions.c.body_size_bytes
_ADOPTABLE: Final = (
    _of_source(views.c.path, case((_WHOLE, BODY_HASH)))
    .join(versions, HEAD)
    .order_by(views.c.path)
    .limit(bindparam("most"))
)


class AdoptedViews(Struct, frozen=True):
    """Stamps for the views of adopted files."""

    revision: int
    turn: int
    loop: int
    positions: int
    """The last position in the run's timeline before them."""
    now_ms: int


def files_seen(connection: Connection, run_id: int) -> list[tuple[str, str]]:
    """Paths of the files that a run sees, with hashes of their bodies; empty if a hash is not computed yet."""
    return [(path, digest or "") for path, digest in connection.execute(_SEEN, {"run_id": run_id})]


def _source(run: RunHead, like_run: str) -> dict[str, Any]:
    return {"project": run.project_id, "project_scope": run.project_scope, "like_run": like_run}


def adoptable(connection: Connection, run: RunHead, like_run: str, most: int) -> list[tuple[str, str]]:
    """The same for what a run adopts from another: files of its project, as they are now; the first ones of them."""
    values = {**_source(run, like_run), "most": most}
    return [(path, digest or "") for path, digest in connection.execute(_ADOPTABLE, values)]


def adopt(connection: Connection, run: RunHead, like_run: str, made: AdoptedViews) -> None:
    """Give a run views of the project's files that another run sees; they follow the heads of the entries."""
    stamps = {f"new_{name}": value for name, value in asdict(made).items()}
    connection.execute(_ADOPT, {"child": run.id, **_source(run, like_run), **stamps})

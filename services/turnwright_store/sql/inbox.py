"""Queries of the inbox: proposals across runs, in the order in which they were proposed.

One partial index contains only what waits now, so queries about all cost no more than there is to decide, whatever else
the runs contain. Those about some projects begin with the runs there that have an open turn: without one nothing waits.
A row's project is that of its run. Source: architecture 7, 11 (a proposal stays pending); rows RU009, RU244.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, literal_column, or_, select
from turnwright_values.types import State

from turnwright_store.domain.viewers import viewer_in
from turnwright_store.sql.columns import not_zero
from turnwright_store.sql.dialect import DatabaseNow
from turnwright_store.sql.entries import IS_CURRENT, VISIBLE_VERSIONS, batched
from turnwright_store.sql.keys import number_in
from turnwright_store.sql.registry import ProjectRow
from turnwright_store.sql.runs import IS_SEEN, execute_seen, seen
from turnwright_store.sql.tables import projects, runs, views
from turnwright_store.sql.views import ENTRY_ROW_COLUMNS, EntryRow

# Literals, as in the index: planners do not look at parameters.
IS_WAITING: Final = and_(IS_CURRENT, views.c.state == number_in(State.PROPOSED))


def _page(since_ms: ColumnElement[int]) -> Select[Any]:
    """What waits after a place; `since_ms` is the time of a row, as the index of all that waits has it, or not."""
    return (
        select(views.c.create_ms, views.c.id, views.c.run_id)
        .join(runs, runs.c.id == views.c.run_id)
        .where(
            IS_WAITING,
            runs.c.removed_ms == literal_column("0"),
            since_ms >= bindparam("after_ms"),
            or_(since_ms > bindparam("after_ms"), views.c.id > bindparam("after_id")),
        )
        .order_by(since_ms, views.c.id)
        .limit(bindparam("page"))
    )


HAS_WAITING: Final = not_zero(runs.c.turn_open)
"""Whether something can wait in a run, which an index by project has."""

_PAGE: Final = _page(views.c.create_ms)
_PAGE_OF_SOME: Final = _page(views.c.create_ms + literal_column("0")).where(HAS_WAITING)
"""By an expression that no index has: planners begin with the runs."""

_PAGE_OF_PROJECT: Final = seen(_PAGE_OF_SOME.where(runs.c.project_id == bindparam("project")))
_NAMED: Final = select(projects.c.id).where(projects.c.name.in_(bindparam("names", expanding=True)))
_PAGE_OF_PROJECTS: Final = _PAGE_OF_SOME.where(runs.c.project_id.in_(_NAMED))
_WHOLE: Final = select(projects.c.id).where(projects.c.name.in_(bindparam("whole", expanding=True)))
_PAGE_SEEN: Final = _PAGE_OF_PROJECTS.where(IS_SEEN | runs.c.project_id.in_(_WHOLE))
"""Where not all runs of all of them are there for the viewer: of `whole` they are."""
_PAGE_OF_RUNS: Final = _PAGE.where(views.c.run_id.in_(bindparam("runs", expanding=True)))
_SHOWN: Final = (
    select(views.c.id, *ENTRY_ROW_COLUMNS)
    .select_from(VISIBLE_VERSIONS)
    .where(views.c.id.in_(bindparam("ids", expanding=True)))
)
_OVERDUE: Final = (
    select(projects.c.name, runs.c.alias, views.c.path)
    .select_from(views)
    .join(runs, runs.c.id == views.c.run_id)
    .join(projects, projects.c.id == runs.c.project_id)
    .where(
        IS_WAITING,
        runs.c.removed_ms == literal_column("0"),
        views.c.create_ms <= DatabaseNow() - bindparam("wait_ms"),
    )
    .order_by(views.c.create_ms, views.c.id)
    .limit(bindparam("page"))
)


class InboxRow(Struct, frozen=True):
    """A waiting row: since when, the row, and its run."""

    since_ms: int
    view: int
    run: int


def page_of_waiting(
    connection: Connection,
    owner: ProjectRow | None,
    of_runs: Sequence[int] | None,
    after: tuple[int, int],
    page: int,
    names: Sequence[str] | None = None,
) -> list[InboxRow]:
    """What waits after (time, row), in some runs, in a project, in all, or in those with one of these names."""
    values: dict[str, Any] = {"after_ms": after[0], "after_id": after[1], "page": page}
    if of_runs is not None:
        return _rows(connection, _PAGE_OF_RUNS, values | {"runs": of_runs})
    if owner is not None:
        values |= {"project": owner.id}
        found = execute_seen(connection, _PAGE_OF_PROJECT, values, viewer_in(owner.project.name))
        return [InboxRow(*row) for row in found]
    if names is None:
        return _rows(connection, _PAGE, values)
    values |= {"names": list(names)}
    viewers = {name: viewer_in(name) for name in names}
    viewer = next(filter(None, viewers.values()), None)
    if viewer is None:
        return _rows(connection, _PAGE_OF_PROJECTS, values)
    whole = [name for name, seen_by in viewers.items() if seen_by is None]
    return _rows(connection, _PAGE_SEEN, {**values, "viewer": viewer, "whole": whole})


def _rows(connection: Connection, statement: Select[Any], values: dict[str, Any]) -> list[InboxRow]:
    return [InboxRow(*row) for row in connection.execute(statement, values)]


def entry_rows_of(connection: Connection, ids: Sequence[int]) -> dict[int, EntryRow]:
    """The entries of rows as their runs see them, by row; removed rows are left out."""
    found: dict[int, EntryRow] = {}
    for part in batched(ids):
        found |= {view: EntryRow(*shown) for view, *shown in connection.execute(_SHOWN, {"ids": part})}
    return found


def list_overdue(connection: Connection, wait_ms: int, page: int) -> list[tuple[str, str, str]]:
    """Project, run and path of what has waited this long by the database's clock."""
    rows = connection.execute(_OVERDUE, {"wait_ms": wait_ms, "page": page})
    return [(project, run, path) for project, run, path in rows]

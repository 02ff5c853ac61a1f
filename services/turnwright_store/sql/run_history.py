"""What a run has seen, with its history: the intervals of all its views, by path, and of a path the latest first."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Select, bindparam, case, func, literal_column, select

from turnwright_core.schemes import OF_SESSIONS
from turnwright_store.sql.clauses import number
from turnwright_store.sql.entries import ENTRY, IN_RUN, IS_CURRENT, VISIBLE_VERSIONS
from turnwright_store.sql.keys import is_of, key_in_sql, newest
from turnwright_store.sql.runs import RunHead
from turnwright_store.sql.tables import entries, turns, versions, views
from turnwright_store.sql.views import ENTRY_ROW_COLUMNS, FROM_REV, HAS_ENDED, EntryRow

_there: Final = versions.alias("there")


def _at_last_turn(revision: Any) -> Any:
    """The revision of a shared scope at the end of the last turn before a view ended; NULL if it saw no such end."""
    return (
        select(revision)
        .where(
            turns.c.run_id == views.c.run_id, turns.c.revision >= views.c.from_rev, turns.c.revision < views.c.to_rev
        )
        .order_by(turns.c.revision.desc())
        .limit(literal_column("1"))
        .correlate(views)
        .scalar_subquery()
    )


_SHARED_REV: Final = case(
    (entries.c.scope_id == number("project_scope"), _at_last_turn(turns.c.end_project_rev)),
    else_=_at_last_turn(turns.c.end_global_rev),
)
_AT_END: Final = (
    select(func.max(_there.c.id))
    .where(newest(views.c.entry_id, _SHARED_REV, _there))
    .correlate(views, entries)
    .scalar_subquery()
)
_AT_BEGIN: Final = (
    select(func.max(_there.c.id))
    .where(is_of(views.c.entry_id, _there), _there.c.create_ms <= views.c.create_ms)
    .correlate(views)
    .scalar_subquery()
)
_SHOWN: Final = func.coalesce(key_in_sql(views.c.entry_id, views.c.version_rev), _AT_END, _AT_BEGIN)

_INTERVAL: Final = select(views.c.to_rev, *ENTRY_ROW_COLUMNS)
_AFTER: Final = (
    IN_RUN,
    views.c.path >= bindparam("after_path"),
    (views.c.path > bindparam("after_path")) | (number("before") > FROM_REV),
    number("until") >= FROM_REV,
)


def _page(statement: Select[Any]) -> Select[Any]:
    is_wanted = (entries.c.scheme != literal_column("''")) | (number("with_files") > literal_column("0"))
    own = statement.where(*_AFTER, is_wanted, entries.c.scheme.not_in(OF_SESSIONS))
    return own.order_by(views.c.path, views.c.to_rev.desc()).limit(number("page"))


# Two queries, so that each uses the index for its half of the intervals.
_CURRENT: Final = _page(_INTERVAL.select_from(VISIBLE_VERSIONS).where(IS_CURRENT))
_PAST: Final = _page(
    _INTERVAL.select_from(views.join(entries, ENTRY).join(versions, versions.c.id == _SHOWN)).where(HAS_ENDED)
)


class SeenInterval(NamedTuple):
    """A view of a run over the revisions from `shown.revision` to `end`."""

    shown: EntryRow
    end: int
    """Revision at which it ended; 0: not up to the moment that is read."""


def intervals_after(
    connection: Connection, run: RunHead, after: tuple[str, int], page: int, *, files: bool
) -> list[SeenInterval]:
    """A page of the views up to the revision of a run, after those of a path from a revision on."""
    until = run.revision_run
    values = {
        "run_id": run.id,
        "project_scope": run.project_scope,
        "until": until,
        "after_path": after[0],
        "before": after[1],
        "page": page,
        "with_files": int(files),
    }
    found = [
        SeenInterval(EntryRow._make(shown), to_rev if to_rev and to_rev <= until else 0)
        for half in (_CURRENT, _PAST)
        for to_rev, *shown in connection.execute(half, values)
    ]
    found.sort(key=lambda one: (one.shown.path, -one.shown.revision))
    return found[:page]

"""Point-in-time queries: what a run saw at an earlier moment, and the history of one path.

A view is an interval over the revisions of its run's scope; the moment lies within it. Open intervals and ended ones
have an index each, so every query is run on both halves; ended intervals have another one by path, so that for a path
no moment is too old. A pinned view names its version; one of a shared scope follows the entry's versions by time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from turnwright_store.ports import Connection
from turnwright_store.sql.core import BigInteger, and_, bindparam, case, desc, func, literal_column, select, union_all
from turnwright_store.sql.entries import batched
from turnwright_store.sql.keys import is_of, key_in_sql, newest
from turnwright_store.sql.lazy_tables import entries, not_zero, versions, views
from turnwright_store.sql.runs import RunHead
from turnwright_store.sql.views import (
    ENTRY,
    ENTRY_ROW_COLUMNS,
    IN_RANGE,
    KINDS,
    VISIBLE_VERSIONS,
    EntryRow,
    Wanted,
    entry_rows,
    filter_values,
    fits,
    range_values,
    storable,
)

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, CompoundSelect, Select


class Moment(Struct, frozen=True):
    """A moment of a run: the revisions of its three scopes."""

    run_id: int
    """The run whose intervals are read: for an inherited turn, the ancestor."""
    run: int
    project: int
    global_: int

    def values(self, project_scope: int) -> dict[str, int]:
        """Parameters of the statements that read at a moment."""
        return {
            "run_id": self.run_id,
            "at_run": self.run,
            "at_project": self.project,
            "at_global": self.global_,
            "project_scope": project_scope,
        }


def number(name: str) -> ColumnElement[int]:
    """A value that is a revision, an id or a time."""
    return bindparam(name, type_=BigInteger)


FROM_REV: Final = views.c.from_rev + literal_column("0")
"""An expression that no index covers: few rows begin late, many begin early, and planners cannot know."""

AT_RUN: Final = number("at_run")
OPEN_STILL: Final = views.c.to_rev.is_(None)
ENDED_SINCE: Final = views.c.to_rev > AT_RUN
HAS_ENDED: Final = not_zero(views.c.to_rev)
"""Together with a path, it selects the index of ended intervals by path."""

_there: Final = versions.alias("there")
_SHARED: Final = (
    select(func.max(_there.c.id))
    .where(
        newest(
            views.c.entry_id,
            case((entries.c.scope_id == number("project_scope"), number("at_project")), else_=number("at_global")),
            _there,
        )
    )
    .correlate(views, entries)
    .scalar_subquery()
)
VERSION_AT: Final = versions.c.id == func.coalesce(key_in_sql(views.c.entry_id, views.c.version_rev), _SHARED)
"""The version that a view showed at a moment."""

ENTRY_ROWS_AT: Final[Select[Any]] = (
    select(*ENTRY_ROW_COLUMNS)
    .select_from(views)
    .join(entries, ENTRY)
    .join(versions, VERSION_AT)
    .where(views.c.run_id == number("run_id"))
)


def current_and_ended(statement: Select[Any], *ended: ColumnElement[bool]) -> CompoundSelect[Any]:
    """A query for the views of a run at a moment; `ended` applies to those that have ended since."""
    return union_all(
        statement.where(OPEN_STILL, FROM_REV <= AT_RUN),
        statement.where(ENDED_SINCE, FROM_REV <= AT_RUN, *ended),
    )


SNAPSHOT_AT: Final = {kind: current_and_ended(ENTRY_ROWS_AT.where(fits(kind))).order_by("position") for kind in KINDS}
PATHS_AT: Final = current_and_ended(
    ENTRY_ROWS_AT.where(views.c.path.in_(bindparam("paths", expanding=True))), HAS_ENDED
)
RANGE_AT: Final = current_and_ended(ENTRY_ROWS_AT.where(IN_RANGE), HAS_ENDED).order_by("path").limit(number("page"))


def snapshot_at(
    connection: Connection, run: RunHead, moment: Moment, wanted: Wanted, hidden: Sequence[str]
) -> list[EntryRow]:
    """What a run saw at a moment, sorted by position."""
    kind, values = filter_values(run, wanted, hidden)
    values |= moment.values(run.project_scope)
    return entry_rows(connection.execute(SNAPSHOT_AT[kind], values))


def find_entry_rows_at(
    connection: Connection, run: RunHead, moment: Moment, paths: Sequence[str]
) -> dict[str, EntryRow]:
    """What a run saw at these paths at a moment."""
    found: dict[str, EntryRow] = {}
    for part in batched(storable(paths)):
        values = {**moment.values(run.project_scope), "paths": part}
        found |= {shown.path: shown for shown in entry_rows(connection.execute(PATHS_AT, values))}
    return found


def list_entry_rows_at(
    connection: Connection, run: RunHead, moment: Moment, prefix: str, after_path: str, page: int
) -> list[EntryRow]:
    """What a run saw at a moment at paths with a prefix, in path order, after a path."""
    if "\0" in prefix:
        return []
    values = {**moment.values(run.project_scope), **range_values(prefix, after_path, page)}
    return entry_rows(connection.execute(RANGE_AT, values))


# ---- What became of a path

_IN_PATH: Final = and_(views.c.run_id == number("run_id"), views.c.path == bindparam("path"))
_INTERVAL: Final[Select[Any]] = (
    select(views.c.to_rev.label("to_rev"), views.c.version_rev.label("pinned"), *ENTRY_ROW_COLUMNS)
    .select_from(VISIBLE_VERSIONS)
    .where(_IN_PATH, number("before") > FROM_REV)
)
_BEGINNING: Final = select(views.c.from_rev.label("revision"), views.c.create_ms).where(
    _IN_PATH, number("before") <= FROM_REV
)
_HISTORY: Final = (
    union_all(_INTERVAL.where(OPEN_STILL), _INTERVAL.where(HAS_ENDED)).order_by(desc("revision")).limit(number("page"))
)
_BEGUN_LATER: Final = (
    union_all(_BEGINNING.where(OPEN_STILL), _BEGINNING.where(HAS_ENDED)).order_by("revision").limit(number("page"))
)
_WRITTEN: Final = (
    select(
        versions.c.id,
        versions.c.from_rev,
        versions.c.body_size_bytes,
        versions.c.writer,
        versions.c.create_ms,
        versions.c.attributes_bytes,
    )
    .where(is_of(number("entry")), versions.c.create_ms <= number("until_ms"))
    .order_by(versions.c.id.desc())
    .limit(number("page"))
)


class _Written(Struct, frozen=True):
    """The part of Shown that comes from a version."""

    content: int
    version: int
    version_bytes: int
    writer: int
    version_ms: int
    attributes_bytes: int


_SAME_MS_MAX: Final = 20
"""Writes of one path within a millisecond that can be distinguished."""


class Interval(Struct, frozen=True):
    """A view of a run over the revisions from `shown.revision` on."""

    shown: EntryRow
    to_rev: int | None
    """The revision at which it ended."""
    is_pinned: bool
    """Whether it shows a fixed version; one of a shared scope follows the head."""


def list_history(connection: Connection, run_id: int, path: str, before: int, page: int) -> list[Interval]:
    """The intervals of a path in a run, latest first, that began before a revision.

    One of a shared scope has the content that it showed before the path was written next, or has now.
    """
    if "\0" in path:
        return []
    values = {"run_id": run_id, "path": path, "before": before}
    rows = connection.execute(_HISTORY, {**values, "page": page}).all()
    intervals = [Interval(EntryRow(*shown), to_rev, pinned is not None) for to_rev, pinned, *shown in rows]
    if all(one.is_pinned or one.to_rev is None for one in intervals):
        return intervals
    later = connection.execute(_BEGUN_LATER, {**values, "page": _SAME_MS_MAX}).all()
    begun = [(revision, ms) for revision, ms in reversed(later)]
    begun += [(one.shown.revision, one.shown.view_ms) for one in intervals]
    return [_as_it_ended(connection, one, begun) for one in intervals]


def _as_it_ended(connection: Connection, one: Interval, begun: Sequence[tuple[int, int]]) -> Interval:
    """An interval with its content at the end.

    Revisions of a run and of a shared scope are related by time alone: an interval ended when the next one began, and
    what that one wrote is not its content.
    """
    if one.is_pinned or one.to_rev is None:
        return one
    ends = [ms for revision, ms in begun if revision >= one.to_rev]
    if not ends:
        return one
    end_ms = ends[-1]
    values = {"entry": one.shown.entry, "until_ms": end_ms, "page": _SAME_MS_MAX}
    written = [_Written(*row) for row in connection.execute(_WRITTEN, values)]
    skipped = min(ends.count(end_ms), sum(each.version_ms == end_ms for each in written))
    if skipped >= len(written):
        return one
    return replace(one, shown=one.shown._replace(**asdict(written[skipped])))

"""Queries on the view of a run, now or at an earlier moment: snapshots, single paths, ranges of paths.

A view is an interval over the revisions of its run's scope. Those that a run sees now are open; at an earlier moment,
they contain it. Open intervals and ended ones have an index each, so a query for a moment is run on both halves; ended
intervals have another one by path, so that for a path no moment is too old. A pinned view names its version; one of a
shared scope follows the entry's versions by time.
Source: architecture 3 (revisions and the change feed), 12.4; RU046, RU063, RU086.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple, cast

from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    or_,
    select,
    true,
    union_all,
)
from turnwright_values.types import Cursor, Entry, State, ViewFilter, Visibility

from turnwright_core.chat.timeline import MESSAGE_SCHEMES
from turnwright_core.schemes import SHARED
from turnwright_store.domain.path_state import ReplacedView
from turnwright_store.sql.clauses import number
from turnwright_store.sql.columns import not_zero
from turnwright_store.sql.entries import AT_PATHS, ENTRY, IN_RUN, IS_CURRENT, batched, seen_now
from turnwright_store.sql.keys import key_in_sql, newest
from turnwright_store.sql.runs import RunHead
from turnwright_store.sql.tables import entries, versions, views

MESSAGES_OF: Final = (*MESSAGE_SCHEMES, "reasoning", "plan")
"""The schemes of what messages are made of."""

PACKET_AUDIT: Final = ("system", "user", "image")
"""Schemes of stored packets: for audit, not part of the run's timeline (C22)."""


def condition(wanted: ViewFilter, view: Any = views, entry: Any = entries) -> ColumnElement[bool]:
    """The SQL condition of a filter; its values come from `filter_values`."""
    match wanted:
        case ViewFilter.ALL | ViewFilter.UNSPECIFIED:
            return true()
        case ViewFilter.PACKET:
            return and_(
                view.c.visibility != int(Visibility.ARCHIVED),
                view.c.state != int(State.PROPOSED),
                entry.c.scheme.not_in(bindparam("hidden", expanding=True)),
            )
        case ViewFilter.TIMELINE:
            return and_(
                entry.c.scope_id.not_in(bindparam("shared", expanding=True)),
                entry.c.scheme.not_in((*PACKET_AUDIT, *SHARED)),
            )
        case ViewFilter.FILES:
            return cast("ColumnElement[bool]", entry.c.scheme == "")
        case ViewFilter.MESSAGES:
            return cast("ColumnElement[bool]", entry.c.scheme.in_(MESSAGES_OF))


ViewKind = tuple[ViewFilter, bool]
"""A filter, and whether some paths come whatever it says."""

KINDS: Final[list[ViewKind]] = [(wanted, include) for wanted in ViewFilter if wanted for include in (False, True)]


def fits(kind: ViewKind, view: Any = views, entry: Any = entries) -> ColumnElement[bool]:
    """What a reader of a kind wants to be shown."""
    wanted, include = kind
    if not include or wanted is ViewFilter.ALL:
        return condition(wanted, view, entry)
    return or_(condition(wanted, view, entry), view.c.path.in_(bindparam("include", expanding=True)))


ENTRY_ROW: Final = {
    "path": views.c.path,
    "scheme": entries.c.scheme,
    "scope": entries.c.scope_id,
    "visibility": views.c.visibility,
    "state": views.c.state,
    "outcome": views.c.outcome,
    "turn": views.c.turn,
    "loop": views.c.loop,
    "position": views.c.position,
    "write_count": views.c.write_count,
    "revision": views.c.from_rev,
    "chunk_bytes": views.c.chunk_bytes,
    "view_ms": views.c.create_ms,
    "content": versions.c.id,
    "entry": versions.c.entry_id,
    "version": versions.c.from_rev,
    "version_bytes": versions.c.body_size_bytes,
    "writer": versions.c.writer,
    "version_ms": versions.c.create_ms,
    "attributes_bytes": versions.c.attributes_bytes,
}
ENTRY_ROW_COLUMNS: Final = tuple(column.label(name) for name, column in ENTRY_ROW.items())
"""The fields of Shown."""


# A tuple is made many times as fast as a frozen dataclass, and every row that is read becomes one of these two.
class EntryRow(NamedTuple):
    """An entry as a run sees it, without its body, attributes and record."""

    path: str
    scheme: str
    scope: int
    visibility: int
    state: int
    outcome: str
    turn: int
    loop: int
    position: int
    write_count: int
    revision: int
    chunk_bytes: int
    view_ms: int
    content: int
    entry: int
    version: int
    version_bytes: int
    writer: int
    version_ms: int
    attributes_bytes: int

    @property
    def body_size_bytes(self) -> int:
        return self.version_bytes + self.chunk_bytes


class Moment(Struct, frozen=True):
    """A moment of a run: the revisions of its three scopes."""

    run: int
    project: int
    global_: int
    project_scope: int

    @property
    def values(self) -> dict[str, int]:
        """Parameters of the statements that read at a moment."""
        return {
            "at_run": self.run,
            "at_project": self.project,
            "at_global": self.global_,
            "project_scope": self.project_scope,
        }


def moment_of(run: RunHead, cursor: Cursor) -> Moment:
    return Moment(cursor.run_revision, cursor.project_revision, cursor.global_revision, run.project_scope)


AT_RUN: Final = number("at_run")
ENDED_SINCE: Final = views.c.to_rev > AT_RUN
HAS_ENDED: Final = not_zero(views.c.to_rev)
"""Together with a path, it selects the index of ended intervals by path."""

FROM_REV: Final = views.c.from_rev + literal_column("0")
"""An expression that no index covers: few rows begin late, many begin early, and planners cannot know."""

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
_VERSION_AT: Final = versions.c.id == func.coalesce(key_in_sql(views.c.entry_id, views.c.version_rev), _SHARED)
"""The version that a view showed at a moment."""

CURRENT_ROWS: Final = seen_now(*ENTRY_ROW_COLUMNS)
ROWS_AT: Final[Select[Any]] = (
    select(*ENTRY_ROW_COLUMNS).select_from(views).join(entries, ENTRY).join(versions, _VERSION_AT).where(IN_RUN)
)


def _by_moment(shown: ColumnElement[bool], *ended: ColumnElement[bool]) -> tuple[Select[Any], CompoundSelect[Any]]:
    """A query for what a run sees now, and for what it saw at a moment; `ended` applies to what has ended since."""
    there = ROWS_AT.where(shown, FROM_REV <= AT_RUN)
    return CURRENT_ROWS.where(shown), union_all(there.where(IS_CURRENT), there.where(ENDED_SINCE, *ended))


_PATHS: Final = _by_moment(AT_PATHS, HAS_ENDED)
CURRENT_PATHS: Final = _PATHS[0]
_RANGE: Final[tuple[Any, ...]] = tuple(
    statement.order_by("path").limit(number("page"))
    for statement in _by_moment(
        and_(
            views.c.path > bindparam("after_path"), views.c.path >= bindparam("low"), views.c.path < bindparam("high")
        ),
        HAS_ENDED,
    )
)
_SNAPSHOT: Final[dict[Any, Any]] = {
    (*kind, is_past): statement.order_by("position")
    for kind in KINDS
    for is_past, statement in enumerate(_by_moment(fits(kind)))
}

_PAGE: Final = 1000
"""Views that one statement reads."""


class Wanted(Struct, frozen=True):
    """Which entries of a view a reader wants, and how much of each."""

    filter: ViewFilter = ViewFilter.ALL
    include: tuple[str, ...] = ()
    bodies: bool = True
    body_bytes_max: int = 0
    """Bytes after which a body is cut; 0: whole bodies."""
    whole: tuple[str, ...] = ()
    """Schemes whose bodies are never cut."""

    def bytes_max(self, scheme: str) -> int:
        """Bytes after which bodies of a scheme are cut; 0: they are whole."""
        return 0 if scheme in self.whole else self.body_bytes_max

    def shows(self, seen: Entry | ReplacedView, hidden: Collection[str]) -> bool:
        """What `fits` says in SQL, for a view that was not read by a query."""
        match self.filter:
            case _ if seen.path in self.include:
                return True
            case ViewFilter.ALL | ViewFilter.UNSPECIFIED:
                return True
            case ViewFilter.PACKET:
                is_ready = seen.visibility is not Visibility.ARCHIVED and seen.state is not State.PROPOSED
                return is_ready and seen.scheme not in hidden
            case ViewFilter.TIMELINE:
                return seen.scope.startswith("run:") and seen.scheme not in (*PACKET_AUDIT, *SHARED)
            case ViewFilter.FILES:
                return seen.scheme == ""
            case ViewFilter.MESSAGES:
                return seen.scheme in MESSAGES_OF


def filter_values(run: RunHead, wanted: Wanted, hidden: Sequence[str]) -> tuple[ViewKind, dict[str, Any]]:
    """The kind of statement for a reader, and the parameters of its filter. `hidden`: schemes not in packets."""
    values: dict[str, Any] = {}
    if wanted.filter is ViewFilter.PACKET:
        values["hidden"] = list(hidden)
    if wanted.filter is ViewFilter.TIMELINE:
        values["shared"] = [run.project_scope, run.global_scope]
    if wanted.include and wanted.filter is not ViewFilter.ALL:
        values["include"] = storable(wanted.include)
    return (wanted.filter, bool(wanted.include)), values


def snapshot(
    connection: Connection, run: RunHead, wanted: Wanted, hidden: Sequence[str], at: Moment | None = None
) -> list[EntryRow]:
    """What a run sees now, or saw at a moment, sorted by position."""
    kind, values = filter_values(run, wanted, hidden)
    return entry_rows(connection.execute(_SNAPSHOT[*kind, at is not None], {**values, **_when(run.id, at)}))


def _when(run_id: int, at: Moment | None) -> dict[str, Any]:
    return {"run_id": run_id, **at.values} if at else {"run_id": run_id}


def entry_rows(rows: Iterable[Any]) -> list[EntryRow]:
    return list(map(EntryRow._make, rows))


def find_entry_rows(
    connection: Connection, run_id: int, paths: Sequence[str], at: Moment | None = None
) -> dict[str, EntryRow]:
    """What a run sees at these paths now, or saw at a moment."""
    found: dict[str, EntryRow] = {}
    for part in batched(storable(paths)):
        rows = connection.execute(_PATHS[at is not None], {"paths": part, **_when(run_id, at)})
        found |= {shown.path: shown for shown in entry_rows(rows)}
    return found


def find_entry_row(connection: Connection, run_id: int, path: str) -> EntryRow | None:
    return find_entry_rows(connection, run_id, [path]).get(path)


def storable(paths: Iterable[str]) -> list[str]:
    """The paths that can be parameters of a query: without NUL."""
    return [path for path in paths if "\0" not in path]


def all_entry_rows(connection: Connection, run_id: int, prefix: str) -> list[EntryRow]:
    """All current views by path prefix, in path order."""
    found = part = list_entry_rows(connection, run_id, prefix, "", _PAGE)
    while len(part) == _PAGE:
        part = list_entry_rows(connection, run_id, prefix, part[-1].path, _PAGE)
        found += part
    return found


def list_entry_rows(
    connection: Connection, run_id: int, prefix: str, after_path: str, page: int, at: Moment | None = None
) -> list[EntryRow]:
    """A page of what a run sees now, or saw at a moment, by path prefix, in path order, after a path."""
    if "\0" in prefix:
        return []
    values = {"after_path": after_path, "low": prefix, "high": prefix + "\U0010ffff", "page": page}
    return entry_rows(connection.execute(_RANGE[at is not None], {**values, **_when(run_id, at)}))

"""Reading what a run sees: snapshots, what changed since a cursor, single paths.

Each question is one statement on one index. Bodies are read apart from it, in batches: a version never changes, so
that what a first statement names can be read later and is still the same moment.
Source: architecture 3 (revisions and the change feed), 12.4; RU046, RU063, RU086.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, or_, select, true

from turnwright_core.entries import Entry, State, Tier, Visibility
from turnwright_store.sql.entries import SEEN_VERSION, parts
from turnwright_store.sql.runs import RunRow
from turnwright_store.sql.tables import chunks, entries, versions, views


class ViewFilter(IntEnum):
    """Which entries of a view are wanted; the numbers of the contract."""

    ALL = 1
    PACKET = 2
    TIMELINE = 3
    FILES = 4


PACKET_AUDIT: Final = ("system", "user")
"""Schemes of what the model was sent: kept for audit, no part of the run's timeline (C22)."""

_CONDITION: Final[dict[ViewFilter, ColumnElement[bool]]] = {
    ViewFilter.ALL: true(),
    ViewFilter.PACKET: and_(
        views.c.visibility != int(Visibility.ARCHIVED),
        views.c.state != int(State.PROPOSED),
        entries.c.scheme.not_in(bindparam("hidden", expanding=True)),
    ),
    ViewFilter.TIMELINE: and_(
        entries.c.scope_id.not_in(bindparam("shared", expanding=True)), entries.c.scheme.not_in(PACKET_AUDIT)
    ),
    ViewFilter.FILES: entries.c.scheme == "",
}

_COLUMNS: Final = (
    views.c.path,
    entries.c.scheme,
    entries.c.scope_id,
    views.c.visibility,
    views.c.state,
    views.c.outcome,
    views.c.turn,
    views.c.loop,
    views.c.position,
    views.c.write_count,
    views.c.from_rev,
    views.c.chunk_bytes,
    views.c.create_ms,
    versions.c.id,
    versions.c.entry_id,
    versions.c.from_rev,
    versions.c.hash,
    versions.c.body_bytes,
    versions.c.writer,
    versions.c.create_ms,
    versions.c.attributes_bytes,
)


@dataclass(frozen=True, slots=True)
class Shown:
    """An entry as a run sees it, without its body and attributes."""

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
    hash: str
    version_bytes: int
    writer: int
    version_ms: int
    attributes_bytes: int

    @property
    def body_bytes(self) -> int:
        """Length of the whole body."""
        return self.version_bytes + self.chunk_bytes


_FROM_REV: Final = views.c.from_rev + 0
"""An expression that no index offers: few rows begin late, many begin early, and planners cannot know."""

_ENTRY: Final = entries.c.id == views.c.entry_id
_SHOWN: Final[Select[Any]] = (
    select(*_COLUMNS)
    .select_from(views)
    .join(entries, _ENTRY)
    .join(versions, SEEN_VERSION)
    .where(views.c.run_id == bindparam("run_id"))
)
_CURRENT: Final = _SHOWN.where(views.c.to_rev.is_(None))
_OPENED: Final = _CURRENT.where(views.c.from_rev > bindparam("after"))
_LEFT: Final = (
    select(views.c.path)
    .join(entries, _ENTRY)
    .where(
        views.c.run_id == bindparam("run_id"),
        views.c.to_rev > bindparam("after"),
        bindparam("after") >= _FROM_REV,
    )
)
_MOVED: Final[Select[Any]] = (
    select(*_COLUMNS)
    .select_from(entries)
    .join(views, and_(views.c.run_id == bindparam("run_id"), views.c.path == entries.c.path, views.c.to_rev.is_(None)))
    .join(versions, and_(versions.c.entry_id == entries.c.id, versions.c.from_rev == entries.c.head_rev))
    .where(
        entries.c.scope_id == bindparam("scope"),
        entries.c.head_rev > bindparam("after_shared"),
        views.c.entry_id == entries.c.id,
        bindparam("after") >= _FROM_REV,
    )
)
_PATHS: Final = _CURRENT.where(views.c.path.in_(bindparam("paths", expanding=True)))
_RANGE: Final = (
    _CURRENT.where(
        views.c.path > bindparam("after_path"), views.c.path >= bindparam("low"), views.c.path < bindparam("high")
    )
    .order_by(views.c.path)
    .limit(bindparam("page"))
)


def _filtered(statement: Select[Any], wanted: ViewFilter, include: bool) -> Select[Any]:
    condition = _CONDITION[wanted]
    if include and wanted is not ViewFilter.ALL:
        condition = or_(condition, views.c.path.in_(bindparam("include", expanding=True)))
    return statement.where(condition)


_Kind = tuple[ViewFilter, bool]
_KINDS: Final[list[_Kind]] = [(wanted, include) for wanted in ViewFilter for include in (False, True)]
SNAPSHOT: Final = {kind: _filtered(_CURRENT, *kind).order_by(views.c.position) for kind in _KINDS}
OPENED: Final = {kind: _filtered(_OPENED, *kind).order_by(views.c.from_rev, views.c.position) for kind in _KINDS}
LEFT: Final = {kind: _filtered(_LEFT, *kind) for kind in _KINDS}
MOVED: Final = {kind: _filtered(_MOVED, *kind) for kind in _KINDS}

_BODIES: Final = select(versions.c.id, versions.c.attributes, versions.c.body).where(
    versions.c.id.in_(bindparam("ids", expanding=True))
)
_ATTRIBUTES: Final = select(versions.c.id, versions.c.attributes).where(
    versions.c.id.in_(bindparam("ids", expanding=True))
)
_CHUNKS: Final = (
    select(chunks.c.data)
    .where(
        chunks.c.entry_id == bindparam("entry"),
        chunks.c.version_rev == bindparam("version"),
        chunks.c.offset < bindparam("bytes"),
    )
    .order_by(chunks.c.offset)
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries of a view a reader wants, and how much of each."""

    filter: ViewFilter = ViewFilter.ALL
    include: tuple[str, ...] = ()
    bodies: bool = True
    body_bytes_max: int = 0
    """Bytes after which a body is cut; 0: whole bodies."""


class ViewReader:
    """The questions one reader asks about one run."""

    def __init__(self, connection: Connection, run: RunRow, wanted: Wanted, hidden: Sequence[str]) -> None:
        """`hidden` names the schemes that no packet shows."""
        self._connection = connection
        self._run = run
        self._kind = (wanted.filter, bool(wanted.include))
        self._values: dict[str, Any] = {"run_id": run.id}
        if wanted.filter is ViewFilter.PACKET:
            self._values["hidden"] = list(hidden)
        if wanted.filter is ViewFilter.TIMELINE:
            self._values["shared"] = [run.project_scope, run.global_scope]
        if wanted.include and wanted.filter is not ViewFilter.ALL:
            self._values["include"] = list(wanted.include)

    def snapshot(self) -> list[Shown]:
        """Everything, in the order of position."""
        return self._shown(SNAPSHOT[self._kind])

    def opened(self, after: int) -> list[Shown]:
        """What the run's own view shows since a revision, in the order of revisions."""
        return self._shown(OPENED[self._kind], after=after)

    def left(self, after: int) -> list[str]:
        """Paths that were shown at a revision and whose view has ended since."""
        return list(self._connection.execute(LEFT[self._kind], {**self._values, "after": after}).scalars())

    def moved(self, scope: int, after_shared: int, after: int) -> list[Shown]:
        """What shows another version since a revision of a shared scope, though the run's view is older."""
        return self._shown(MOVED[self._kind], scope=scope, after_shared=after_shared, after=after)

    def _shown(self, statement: Select[Any], **values: int) -> list[Shown]:
        return _shown(self._connection.execute(statement, {**self._values, **values}))


def _shown(rows: Any) -> list[Shown]:
    return [Shown(*row) for row in rows]


def find_shown(connection: Connection, run_id: int, paths: Sequence[str]) -> dict[str, Shown]:
    """What a run sees of these paths."""
    found: dict[str, Shown] = {}
    for part in parts(paths):
        for shown in _shown(connection.execute(_PATHS, {"run_id": run_id, "paths": part})):
            found[shown.path] = shown
    return found


def list_shown(connection: Connection, run_id: int, prefix: str, after_path: str, page: int) -> list[Shown]:
    """What a run sees of the paths that begin with a prefix, in path order, those after a path."""
    values = {"run_id": run_id, "after_path": after_path, "low": prefix, "high": prefix + "\U0010ffff", "page": page}
    return _shown(connection.execute(_RANGE, values))


def load_entries(connection: Connection, run: RunRow, shown: Sequence[Shown], wanted: Wanted) -> list[Entry]:
    """The entries with attributes, and with bodies where they are wanted."""
    contents: dict[int, tuple[str, str]] = {}
    statement = _BODIES if wanted.bodies else _ATTRIBUTES
    for part in parts(shown):
        ids = [one.content for one in part]
        for version, attributes, *body in connection.execute(statement, {"ids": ids}):
            contents[version] = (attributes, body[0] if body else "")
    return [_entry(connection, run, one, contents[one.content], wanted) for one in shown]


def _entry(connection: Connection, run: RunRow, one: Shown, content: tuple[str, str], wanted: Wanted) -> Entry:
    attributes, body = content
    if one.chunk_bytes and wanted.bodies:
        end = one.chunk_bytes if not wanted.body_bytes_max else min(one.chunk_bytes, wanted.body_bytes_max)
        values = {"entry": one.entry, "version": one.version, "bytes": end}
        data = "".join(connection.execute(_CHUNKS, values).scalars())
        body += cut(data, one.chunk_bytes)
    if wanted.body_bytes_max:
        body = cut(body, wanted.body_bytes_max)
    return Entry(
        path=one.path,
        scheme=one.scheme,
        scope=run.scope_key(one.scope),
        body=body,
        body_bytes=one.body_bytes,
        attributes_json=attributes,
        visibility=Visibility(one.visibility),
        state=State(one.state),
        outcome=one.outcome,
        writer=Tier(one.writer),
        turn=one.turn,
        loop=one.loop,
        position=one.position,
        write_count=one.write_count,
        revision=one.revision,
        # The digest of a body that still grows would have to be made anew for each piece; it comes with the fold.
        hash="" if one.chunk_bytes else one.hash,
        update_ms=one.view_ms if one.chunk_bytes else one.version_ms,
    )


def cut(text: str, bytes_max: int) -> str:
    """The longest beginning of a text that has at most so many bytes of UTF-8, ending at a character."""
    if len(text) * 4 <= bytes_max:
        return text
    data = text.encode()
    return text if len(data) <= bytes_max else data[:bytes_max].decode(errors="ignore")

"""Queries on the current view of a run: snapshots, single paths, ranges of paths; and loading of contents.

Each query is one statement on one index. Bodies are read separately, in batches: versions are immutable, so they can be
read later and still belong to the same moment.
Source: architecture 3 (revisions and the change feed), 12.4; RU046, RU063, RU086.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from msgspec import Struct

from turnwright_core.chat.timeline import MESSAGE_SCHEMES
from turnwright_core.entries import STATES, TIERS, VISIBILITIES, Entry, State, Visibility
from turnwright_store.ports import Connection
from turnwright_store.sql.core import and_, bindparam, case, literal_column, or_, select, true, type_coerce
from turnwright_store.sql.entries import BODY_HASH, SEEN_VERSION, batched
from turnwright_store.sql.lazy_tables import chunks, entries, versions, views
from turnwright_store.sql.runs import RunHead, run_not_found

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Select


class ViewFilter(IntEnum):
    """Which entries of a view are wanted; the numbers of the contract."""

    ALL = 1
    PACKET = 2
    TIMELINE = 3
    FILES = 4
    MESSAGES = 5


MESSAGES_OF: Final = (*MESSAGE_SCHEMES, "reasoning", "plan")
"""The schemes of what messages are made of."""

PACKET_AUDIT: Final = ("system", "user", "image")
"""Schemes of stored packets: for audit, not part of the run's timeline (C22)."""


def condition(wanted: ViewFilter, view: Any = views, entry: Any = entries) -> ColumnElement[bool]:
    """The SQL condition of a filter; its values come from `filter_values`."""
    match wanted:
        case ViewFilter.ALL:
            return true()
        case ViewFilter.PACKET:
            return and_(
                view.c.visibility != int(Visibility.ARCHIVED),
                view.c.state != int(State.PROPOSED),
                entry.c.scheme.not_in(bindparam("hidden", expanding=True)),
            )
        case ViewFilter.TIMELINE:
            return and_(
                entry.c.scope_id.not_in(bindparam("shared", expanding=True)), entry.c.scheme.not_in(PACKET_AUDIT)
            )
        case ViewFilter.FILES:
            return cast("ColumnElement[bool]", entry.c.scheme == "")
        case ViewFilter.MESSAGES:
            return cast("ColumnElement[bool]", entry.c.scheme.in_(MESSAGES_OF))


def is_wanted(
    wanted: ViewFilter,
    run: RunHead,
    hidden: Collection[str],
    scheme: str,
    scope: int,
    visibility: Visibility,
    state: State,
) -> bool:
    """The same condition in Python, for a view that was not read by a query."""
    match wanted:
        case ViewFilter.ALL:
            return True
        case ViewFilter.PACKET:
            return visibility is not Visibility.ARCHIVED and state is not State.PROPOSED and scheme not in hidden
        case ViewFilter.TIMELINE:
            return scope not in (run.project_scope, run.global_scope) and scheme not in PACKET_AUDIT
        case ViewFilter.FILES:
            return scheme == ""
        case ViewFilter.MESSAGES:
            return scheme in MESSAGES_OF


ViewKind = tuple[ViewFilter, bool]
"""A filter, and whether some paths come whatever it says."""

KINDS: Final[list[ViewKind]] = [(wanted, include) for wanted in ViewFilter for include in (False, True)]


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


_SHOWN: Final = len(ENTRY_ROW_COLUMNS)


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


ENTRY: Final = entries.c.id == views.c.entry_id
VISIBLE_VERSIONS: Final = views.join(entries, ENTRY).join(versions, SEEN_VERSION)
"""Views with their entries and the versions that they show."""

_CURRENT: Final[Select[Any]] = (
    select(*ENTRY_ROW_COLUMNS)
    .select_from(VISIBLE_VERSIONS)
    .where(views.c.run_id == bindparam("run_id"), views.c.to_rev.is_(None))
)
_IN_PATHS: Final = views.c.path.in_(bindparam("paths", expanding=True))
_PATHS: Final = _CURRENT.where(_IN_PATHS)
IN_RANGE: Final = and_(
    views.c.path > bindparam("after_path"), views.c.path >= bindparam("low"), views.c.path < bindparam("high")
)
_RANGE: Final = _CURRENT.where(IN_RANGE).order_by(views.c.path).limit(bindparam("page"))
SNAPSHOT: Final = {kind: _CURRENT.where(fits(kind)).order_by(views.c.position) for kind in KINDS}

_PAGE: Final = 1000
"""Views that one statement reads."""

SHORT_BYTES_MAX: Final = 64 * 1024
"""Bodies up to which they are read together with what shows them, where few are asked for."""

_CONTENT: Final = (versions.c.id, versions.c.stored_bytes, BODY_HASH, versions.c.attributes, versions.c.record)
_SHORT_BODY: Final = case((versions.c.stored_bytes <= literal_column(str(SHORT_BYTES_MAX)), versions.c.body))
_WHOLE_PATHS: Final = _PATHS.with_only_columns(
    *ENTRY_ROW_COLUMNS, *_CONTENT[1:], type_coerce(_SHORT_BODY, versions.c.body.type)
)
_WITH_BODIES: Final = select(*_CONTENT, versions.c.body).where(versions.c.id.in_(bindparam("ids", expanding=True)))
_WITHOUT_BODIES: Final = select(*_CONTENT).where(versions.c.id.in_(bindparam("ids", expanding=True)))
_CHUNKS: Final = (
    select(chunks.c.data)
    .where(
        chunks.c.entry_id == bindparam("entry"),
        chunks.c.version_rev == bindparam("version"),
        chunks.c.offset >= bindparam("folded"),
        chunks.c.offset < bindparam("end"),
    )
    .order_by(chunks.c.offset)
)


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


def snapshot(connection: Connection, run: RunHead, wanted: Wanted, hidden: Sequence[str]) -> list[EntryRow]:
    """The current view of a run, sorted by position."""
    kind, values = filter_values(run, wanted, hidden)
    return entry_rows(connection.execute(SNAPSHOT[kind], {"run_id": run.id, **values}))


def entry_rows(rows: Iterable[Any]) -> list[EntryRow]:
    return list(map(EntryRow._make, rows))


def find_entry_rows(connection: Connection, run_id: int, paths: Sequence[str]) -> dict[str, EntryRow]:
    """The current views of these paths."""
    found: dict[str, EntryRow] = {}
    for part in batched(storable(paths)):
        rows = connection.execute(_PATHS, {"run_id": run_id, "paths": part})
        found |= {shown.path: shown for shown in entry_rows(rows)}
    return found


def find_entry_row(connection: Connection, run_id: int, path: str) -> EntryRow | None:
    """The current view of a path."""
    return find_entry_rows(connection, run_id, [path]).get(path)


def find_entry(connection: Connection, run: RunHead, path: str, *, bodies: bool = True) -> Entry | None:
    """The entry that a run sees at a path."""
    shown = find_entry_row(connection, run.id, path)
    return load_entries(connection, run, [shown], Wanted(bodies=bodies))[0] if shown else None


def find_rows_with_content(
    connection: Connection, run_id: int, paths: Sequence[str]
) -> tuple[dict[str, EntryRow], dict[int, VersionContent]]:
    """The current views of a few paths, and short contents by version."""
    found: dict[str, EntryRow] = {}
    loaded: dict[int, VersionContent] = {}
    if given := storable(paths):
        for row in connection.execute(_WHOLE_PATHS, {"run_id": run_id, "paths": given}):
            shown = EntryRow._make(row[:_SHOWN])
            found[shown.path] = shown
            if row[-1] is not None:
                loaded[shown.content] = VersionContent._make(row[_SHOWN:])
    return found, loaded


def storable(paths: Iterable[str]) -> list[str]:
    """The paths that can be parameters of a query: without NUL."""
    return [path for path in paths if "\0" not in path]


def range_values(prefix: str, after_path: str, page: int) -> dict[str, Any]:
    return {"after_path": after_path, "low": prefix, "high": prefix + "\U0010ffff", "page": page}


def all_entry_rows(connection: Connection, run_id: int, prefix: str) -> list[EntryRow]:
    """All current views by path prefix, in path order."""
    found: list[EntryRow] = []
    while part := list_entry_rows(connection, run_id, prefix, found[-1].path if found else "", _PAGE):
        found += part
    return found


def list_entry_rows(connection: Connection, run_id: int, prefix: str, after_path: str, page: int) -> list[EntryRow]:
    """A page of current views by path prefix, in path order, after a path."""
    if "\0" in prefix:
        return []
    return entry_rows(connection.execute(_RANGE, {"run_id": run_id, **range_values(prefix, after_path, page)}))


class VersionContent(NamedTuple):
    """What is loaded of a version. Compaction may go on between two reads; a version is otherwise fixed."""

    stored_bytes: int
    hash: str
    attributes: str
    record: bytes | None
    body: str = ""


def load_entries(
    connection: Connection,
    run: RunHead,
    shown: Sequence[EntryRow],
    wanted: Wanted,
    loaded: Mapping[int, VersionContent] | None = None,
) -> list[Entry]:
    """Load entries with attributes, and bodies if wanted; `loaded` has what was read before.

    Raises RUN_NOT_FOUND if the run was removed in the meantime, with its versions.
    """
    contents: dict[int, VersionContent] = dict(loaded) if loaded else {}
    statement = _WITH_BODIES if wanted.bodies else _WITHOUT_BODIES
    for part in batched(one.content for one in shown if one.content not in contents):
        for version, *content in connection.execute(statement, {"ids": part}):
            contents[version] = VersionContent(*content)
    if any(one.content not in contents for one in shown):
        raise run_not_found(run.project, run.alias)
    return [_entry(connection, run, one, contents[one.content], wanted) for one in shown]


def _entry(connection: Connection, run: RunHead, one: EntryRow, content: VersionContent, wanted: Wanted) -> Entry:
    return Entry(
        path=one.path,
        scheme=one.scheme,
        scope=run.scope_key(one.scope),
        body=_body(connection, one, content, wanted.bytes_max(one.scheme)) if wanted.bodies else "",
        body_size_bytes=one.body_size_bytes,
        attributes_json=content.attributes,
        visibility=VISIBILITIES[one.visibility],
        state=STATES[one.state],
        outcome=one.outcome,
        writer=TIERS[one.writer],
        turn=one.turn,
        loop=one.loop,
        position=one.position,
        write_count=one.write_count,
        revision=one.revision,
        # The digest of a body that still grows would have to be made anew for each piece; it comes with the fold.
        hash=content.hash if one.body_size_bytes == content.stored_bytes else "",
        update_ms=one.view_ms if one.chunk_bytes else one.version_ms,
        record=content.record or b"",
    )


def _body(connection: Connection, one: EntryRow, content: VersionContent, bytes_max: int) -> str:
    """The body up to the length in the view: the compacted part from the version, the rest from chunks."""
    end = min(one.body_size_bytes, bytes_max) if bytes_max else one.body_size_bytes
    if end <= content.stored_bytes:
        return content.body if end == content.stored_bytes else cut(content.body, end)
    folded = content.stored_bytes - one.version_bytes
    values = {"entry": one.entry, "version": one.version, "folded": folded, "end": end - one.version_bytes}
    body = "".join([content.body, *connection.execute(_CHUNKS, values).scalars()])
    return cut(body, end) if bytes_max else body


def cut(text: str, bytes_max: int) -> str:
    """The longest prefix of a text with at most this many bytes of UTF-8."""
    if len(text) * 4 <= bytes_max:
        return text
    data = text[:bytes_max].encode()
    return data[:bytes_max].decode(errors="ignore")

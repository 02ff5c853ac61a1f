"""Queries and writes for entries, versions, views and chunks: many paths in few statements."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from turnwright_core.entries import STATES, TIERS, VISIBILITIES
from turnwright_store.domain.path_state import StoredVersion, View
from turnwright_store.ports import Connection
from turnwright_store.sql.clauses import parameters
from turnwright_store.sql.core import and_, bindparam, case, func, insert, literal_column, select, type_coerce, update
from turnwright_store.sql.keys import is_version
from turnwright_store.sql.lazy_tables import DigestOrText, chunks, entries, versions, views

if TYPE_CHECKING:
    from sqlalchemy import Select

T = TypeVar("T")

PATHS_A_STATEMENT: Final = 1000
"""Maximum length of an IN list; each length is a separate statement for the driver."""

SEEN_VERSION: Final = is_version(views.c.entry_id, func.coalesce(views.c.version_rev, entries.c.head_rev))
"""The version that a view shows: the pinned one, else the head of its entry."""

HEAD: Final = is_version(entries.c.id, entries.c.head_rev)
"""The latest version of an entry."""

BODY_HASH: Final = type_coerce(
    case((func.length(versions.c.hash) == literal_column("0"), versions.c.body), else_=versions.c.hash), DigestOrText
)
"""The digest of a version's body."""

_CONTENT: Final = (
    entries.c.id,
    entries.c.scope_id,
    versions.c.id,
    versions.c.from_rev,
    BODY_HASH,
    versions.c.body_size_bytes,
    versions.c.writer,
    versions.c.attributes,
    versions.c.record,
    versions.c.create_ms,
)


def of_seen_paths(*columns: Any) -> Select[Any]:
    """A query for what a run sees at some paths, with entry and version."""
    return (
        select(*columns)
        .select_from(views)
        .join(entries, entries.c.id == views.c.entry_id)
        .join(versions, SEEN_VERSION)
        .where(
            views.c.run_id == bindparam("run_id"),
            views.c.to_rev.is_(None),
            views.c.path.in_(bindparam("paths", expanding=True)),
        )
    )


_SEEN: Final = of_seen_paths(
    views.c.path,
    views.c.id,
    views.c.from_rev,
    views.c.chunk_bytes,
    views.c.visibility,
    views.c.state,
    views.c.outcome,
    views.c.turn,
    views.c.loop,
    views.c.position,
    views.c.write_count,
    *_CONTENT,
)
_UNSEEN: Final = (
    select(entries.c.path, *_CONTENT)
    .select_from(entries)
    .join(versions, HEAD)
    .where(entries.c.scope_id == bindparam("scope"), entries.c.path.in_(bindparam("paths", expanding=True)))
)
_LATEST: Final = chunks.alias("latest")
_TAILS: Final = (
    select(entries.c.id, versions.c.stored_bytes - versions.c.body_size_bytes, chunks.c.offset, chunks.c.data)
    .select_from(entries)
    .join(versions, HEAD)
    .outerjoin(
        chunks,
        and_(
            chunks.c.entry_id == entries.c.id,
            chunks.c.version_rev == entries.c.head_rev,
            chunks.c.offset
            == select(func.max(_LATEST.c.offset))
            .where(_LATEST.c.entry_id == entries.c.id, _LATEST.c.version_rev == entries.c.head_rev)
            .scalar_subquery(),
        ),
    )
    .where(entries.c.id.in_(bindparam("ids", expanding=True)))
)
_BODIES: Final = select(versions.c.id, versions.c.stored_bytes, versions.c.body).where(
    versions.c.id.in_(bindparam("ids", expanding=True))
)
_CHUNKS: Final = (
    select(chunks.c.data)
    .where(
        chunks.c.entry_id == bindparam("entry"),
        chunks.c.version_rev == bindparam("rev"),
        chunks.c.offset < bindparam("bytes"),
    )
    .order_by(chunks.c.offset)
)
_ENTRY: Final = ("id", "scope_id", "path", "scheme", "head_rev", "shared_rev")
_ENTRIES_ADD: Final = insert(entries).values(parameters(*_ENTRY))
_VERSION: Final = (
    "id", "entry_id", "from_rev", "writer", "actor", "create_ms", "hash", "body_size_bytes", "stored_bytes",
    "attributes_bytes", "attributes", "record", "body",
)  # fmt: skip
_VERSIONS_ADD: Final = insert(versions).values(parameters(*_VERSION))
_HEADS_MOVE: Final = update(entries).where(entries.c.id == bindparam("entry")).values(head_rev=bindparam("new_head"))
_SHARED_MOVE: Final = (
    update(entries)
    .where(entries.c.id == bindparam("entry"))
    .values(head_rev=bindparam("new_head"), shared_rev=bindparam("new_head"))
)
_VIEWS_CLOSE: Final = (
    update(views).where(views.c.id.in_(bindparam("ids", expanding=True))).values(to_rev=bindparam("closed"))
)
_VIEW: Final = (
    "run_id", "entry_id", "path", "from_rev", "version_rev", "chunk_bytes", "visibility", "state", "outcome", "turn",
    "loop", "position", "write_count", "create_ms",
)  # fmt: skip
_VIEWS_ADD: Final = insert(views).values(parameters(*_VIEW))
_CHUNK: Final = ("entry_id", "version_rev", "offset", "data")
_CHUNKS_ADD: Final = insert(chunks).values(parameters(*_CHUNK))

Row = tuple[Any, ...]


def batched(items: Iterable[T], size: int = PATHS_A_STATEMENT) -> list[list[T]]:
    """The items in lists of at most `size`."""
    every = list(items)
    return [every[begin : begin + size] for begin in range(0, len(every), size)]


class StoredPath(Struct, frozen=True):
    """What is stored at a path: the visible content, what was appended to it, and the view."""

    content: StoredVersion
    tail: int
    """Bytes of chunks after the content."""
    view: View | None = None


def find_visible(connection: Connection, run_id: int, paths: Iterable[str]) -> dict[str, StoredPath]:
    """The views of a run at these paths; paths without a view are missing."""
    found: dict[str, StoredPath] = {}
    for part in batched(paths):
        for row in connection.execute(_SEEN, {"run_id": run_id, "paths": part}):
            path, view_id, revision, tail, visibility, state, *rest = row[:11]
            view = View(view_id, revision, VISIBILITIES[visibility], STATES[state], *rest)
            found[path] = StoredPath(_content(row[11:]), tail, view)
    return found


def prefetch_in_scope(connection: Connection, scope: int, paths: Collection[str]) -> list[Any]:
    """Prefetch the query of `find_in_scope`; pass the result as `asked`."""
    return [connection.prefetch(_UNSEEN, {"scope": scope, "paths": part}) for part in batched(paths)]


def find_in_scope(
    connection: Connection, scope: int, paths: Collection[str], asked: list[Any] | None = None
) -> dict[str, StoredPath]:
    """The entries of a shared scope at these paths, whether a run sees them or not. None has a tail."""
    found: dict[str, StoredPath] = {}
    if asked is None:
        asked = [connection.execute(_UNSEEN, {"scope": scope, "paths": part}) for part in batched(paths)]
    for rows in asked:
        for path, *content in rows:
            if path in paths:
                found[path] = StoredPath(_content(content), 0)
    return found


def find_in_own_scope(
    connection: Connection, scope: int, paths: Collection[str], asked: list[Any] | None = None
) -> dict[str, StoredPath]:
    """The entries of a run's scope at these paths, with everything that was ever appended."""
    found = find_in_scope(connection, scope, paths, asked)
    if not found:
        return found
    tails: dict[int, int] = {}
    for part in batched([stored.content.entry for stored in found.values()]):
        for entry, folded, offset, data in connection.execute(_TAILS, {"ids": part}):
            tails[entry] = max(folded, 0) if data is None else offset + len(data.encode())
    return {path: replace(stored, tail=tails[stored.content.entry]) for path, stored in found.items()}


def _content(row: Sequence[Any]) -> StoredVersion:
    entry, scope, version, rev, digest, body_size_bytes, writer, attributes, record, create_ms = row
    return StoredVersion(
        entry, scope, version, rev, digest, body_size_bytes, TIERS[writer], attributes, record or b"", create_ms
    )


def load_bodies(connection: Connection, wanted: Mapping[StoredVersion, int]) -> dict[int, str]:
    """Whole bodies by version, given the length appended to each, whether compacted yet or not."""
    bodies: dict[int, str] = {}
    by_version = {content.version: (content, tail) for content, tail in wanted.items()}
    for part in batched(by_version):
        for version, stored_bytes, body in connection.execute(_BODIES, {"ids": part}):
            bodies[version] = _whole(connection, *by_version[version], stored_bytes, body)
    return bodies


def _whole(connection: Connection, content: StoredVersion, tail: int, stored_bytes: int, body: str) -> str:
    wanted = content.body_size_bytes + tail
    if stored_bytes == wanted:
        return body
    if stored_bytes > wanted:
        return body.encode()[:wanted].decode()
    values = {"entry": content.entry, "rev": content.rev, "bytes": tail}
    return "".join([body, *connection.execute(_CHUNKS, values).scalars()])


def add_entries(connection: Connection, rows: Sequence[Row]) -> None:
    """Insert entries: id, scope, path, scheme, head, head once more if the scope is shared."""
    if rows:
        connection.insert(_ENTRIES_ADD, _ENTRY, rows)


def add_versions(connection: Connection, rows: Sequence[Row]) -> None:
    """Insert immutable versions: key, entry, revision, then the columns in table order."""
    if rows:
        connection.insert(_VERSIONS_ADD, _VERSION, rows)


def move_heads(connection: Connection, heads: Sequence[tuple[int, int]], *, shared: bool) -> None:
    """Make newer versions, by entry and revision, the heads of their entries; either all in shared scopes or none."""
    if heads:
        values = [{"entry": entry, "new_head": head} for entry, head in heads]
        connection.execute_many(_SHARED_MOVE if shared else _HEADS_MOVE, values)


def close_views(connection: Connection, ids: Iterable[int], revision: int) -> None:
    """End the intervals of views."""
    for part in batched(ids):
        connection.execute(_VIEWS_CLOSE, {"ids": part, "closed": revision})


def add_views(connection: Connection, rows: Sequence[Row]) -> None:
    """Begin intervals of views: the columns in table order, without id and end."""
    if rows:
        connection.insert(_VIEWS_ADD, _VIEW, rows)


def add_chunks(connection: Connection, rows: Sequence[Row]) -> None:
    """Insert pieces of streamed bodies: entry, revision of its version, offset, text."""
    if rows:
        connection.insert(_CHUNKS_ADD, _CHUNK, rows)

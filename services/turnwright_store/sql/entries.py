"""Rows of entries, versions, views and chunks, as a write needs them: many paths in few statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, and_, bindparam, func, insert, select, update

from turnwright_core.entries import State, Tier, Visibility
from turnwright_store.domain.slots import Content, Sight
from turnwright_store.sql.tables import chunks, entries, versions, views

T = TypeVar("T")

PATHS_A_STATEMENT: Final = 1000
"""Values in one IN list; each of their numbers is a statement of its own to the driver."""

SEEN_VERSION: Final = and_(
    versions.c.entry_id == views.c.entry_id,
    versions.c.from_rev == func.coalesce(views.c.version_rev, entries.c.head_rev),
)
"""The version that a view shows: the pinned one, else the head of its entry."""

_CONTENT: Final = (
    entries.c.id,
    versions.c.from_rev,
    versions.c.hash,
    versions.c.body_bytes,
    versions.c.writer,
    versions.c.attributes,
)
_SEEN: Final = (
    select(
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
    .join(entries, entries.c.id == views.c.entry_id)
    .join(versions, SEEN_VERSION)
    .where(
        views.c.run_id == bindparam("run_id"),
        views.c.to_rev.is_(None),
        views.c.path.in_(bindparam("paths", expanding=True)),
    )
)
_UNSEEN: Final = (
    select(entries.c.path, *_CONTENT)
    .join(versions, and_(versions.c.entry_id == entries.c.id, versions.c.from_rev == entries.c.head_rev))
    .where(entries.c.scope_id == bindparam("scope"), entries.c.path.in_(bindparam("paths", expanding=True)))
)
_BODY: Final = select(versions.c.body).where(
    versions.c.entry_id == bindparam("entry"), versions.c.from_rev == bindparam("rev")
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
_ENTRIES_ADD: Final = insert(entries).returning(entries.c.scope_id, entries.c.path, entries.c.id)
_VERSIONS_ADD: Final = insert(versions)
_HEADS_MOVE: Final = update(entries).where(entries.c.id == bindparam("entry")).values(head_rev=bindparam("new_head"))
_VIEWS_CLOSE: Final = (
    update(views).where(views.c.id.in_(bindparam("ids", expanding=True))).values(to_rev=bindparam("closed"))
)
_VIEWS_ADD: Final = insert(views)
_CHUNKS_ADD: Final = insert(chunks)

Rows = list[dict[str, Any]]


def parts(items: Iterable[T], size: int = PATHS_A_STATEMENT) -> Iterator[list[T]]:
    """The items in lists of at most `size`."""
    left = iter(items)
    while part := list(islice(left, size)):
        yield part


def seen(connection: Connection, run_id: int, paths: Iterable[str]) -> dict[str, tuple[Sight, Content]]:
    """What a run sees of these paths; those without a view are missing."""
    found: dict[str, tuple[Sight, Content]] = {}
    for part in parts(paths):
        for row in connection.execute(_SEEN, {"run_id": run_id, "paths": part}):
            path, view_id, revision, chunk_bytes, visibility, state, *rest = row[:11]
            sight = Sight(view_id, revision, chunk_bytes, Visibility(visibility), State(state), *rest)
            found[path] = (sight, _content(row[11:]))
    return found


def unseen(connection: Connection, scope: int, paths: Iterable[str]) -> dict[str, Content]:
    """What is stored in a scope under these paths, whoever sees it."""
    found: dict[str, Content] = {}
    for part in parts(paths):
        for path, *content in connection.execute(_UNSEEN, {"scope": scope, "paths": part}):
            found[path] = _content(content)
    return found


def _content(row: Sequence[Any]) -> Content:
    entry, rev, digest, body_bytes, writer, attributes = row
    return Content(entry, rev, digest, body_bytes, Tier(writer), attributes)


def body_reader(connection: Connection) -> Callable[[int, int, int], str]:
    """A function (entry, version, bytes of chunks) -> the whole body."""

    def read(entry: int, rev: int, chunk_bytes: int) -> str:
        body: str = connection.execute(_BODY, {"entry": entry, "rev": rev}).scalar_one()
        if not chunk_bytes:
            return body
        data = connection.execute(_CHUNKS, {"entry": entry, "rev": rev, "bytes": chunk_bytes}).scalars()
        return "".join([body, *data])

    return read


def add_entries(connection: Connection, rows: Rows) -> dict[tuple[int, str], int]:
    """The ids of new entries, by scope and path: asking for them in the order of the rows would insert them singly."""
    if not rows:
        return {}
    return {(scope, path): entry for scope, path, entry in connection.execute(_ENTRIES_ADD, rows)}


def add_versions(connection: Connection, rows: Rows) -> None:
    """Add immutable versions."""
    if rows:
        connection.execute(_VERSIONS_ADD, rows)


def move_heads(connection: Connection, rows: Rows) -> None:
    """Make newer versions the heads of their entries."""
    if rows:
        connection.execute(_HEADS_MOVE, rows)


def close_views(connection: Connection, ids: Iterable[int], revision: int) -> None:
    """End the intervals of views."""
    for part in parts(ids):
        connection.execute(_VIEWS_CLOSE, {"ids": part, "closed": revision})


def add_views(connection: Connection, rows: Rows) -> None:
    """Begin intervals of views."""
    if rows:
        connection.execute(_VIEWS_ADD, rows)


def add_chunks(connection: Connection, rows: Rows) -> None:
    """Add to streaming bodies."""
    if rows:
        connection.execute(_CHUNKS_ADD, rows)

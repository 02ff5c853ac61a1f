"""Queries and writes for entries, versions, views and chunks: many paths in few statements."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import (
    CompoundSelect,
    Connection,
    Select,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal_column,
    select,
    type_coerce,
    union_all,
    update,
)

from turnwright_core.entries import STATES, TIERS, VISIBILITIES
from turnwright_store.domain.path_state import EntryVersion, View
from turnwright_store.sql.clauses import insertion, number, unanswered
from turnwright_store.sql.dialect import DigestOrText
from turnwright_store.sql.keys import is_version
from turnwright_store.sql.tables import chunks, entries, versions, views

T = TypeVar("T")

PATHS_A_STATEMENT: Final = 1000
"""Maximum length of an IN list; each length is a separate statement for the driver."""

ENTRY: Final = entries.c.id == views.c.entry_id
SEEN_VERSION: Final = is_version(views.c.entry_id, func.coalesce(views.c.version_rev, entries.c.head_rev))
"""The version that a view shows: the pinned one, else the head of its entry."""

VISIBLE_VERSIONS: Final = views.join(entries, ENTRY).join(versions, SEEN_VERSION)
"""Views with their entries and the versions that they show."""

IN_RUN: Final = views.c.run_id == number("run_id")
IS_CURRENT: Final = views.c.to_rev.is_(None)
AT_PATHS: Final = views.c.path.in_(bindparam("paths", expanding=True))


def seen_now(*columns: Any) -> Select[Any]:
    """A query for what a run sees now, with entry and version."""
    return select(*columns).select_from(VISIBLE_VERSIONS).where(IN_RUN, IS_CURRENT)


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


_VIEW_STATE: Final = (
    "id", "from_rev", "chunk_bytes", "visibility", "state", "outcome", "turn", "loop", "position", "write_count"
)  # fmt: skip
_SEEN: Final = seen_now(views.c.path, *(getattr(views.c, name) for name in _VIEW_STATE), *_CONTENT).where(AT_PATHS)
_NO_VIEW: Final[list[Any]] = [literal_column("''" if name == "outcome" else "0") for name in _VIEW_STATE]
_UNSEEN: Final = (
    select(entries.c.path, *_NO_VIEW, *_CONTENT)
    .select_from(entries)
    .join(versions, HEAD)
    .where(
        entries.c.scope_id.in_(bindparam("scopes", expanding=True)),
        entries.c.path.in_(bindparam("paths", expanding=True)),
        ~exists(
            select(literal_column("1"))
            .select_from(views)
            .where(IN_RUN, IS_CURRENT, views.c.path == entries.c.path, ENTRY)
            .correlate(entries)
        ),
    )
)
_AT_PATHS: Final[CompoundSelect[Any]] = union_all(_SEEN, _UNSEEN)
"""What a run sees at some paths, and the other entries at them in the scopes where it would make some."""

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
ENTRIES: Final = insertion(entries)
"""Their heads stand once more in the last column if the scope is shared."""

VERSIONS: Final = insertion(versions)
_HEADS_MOVE: Final = unanswered(
    update(entries).where(entries.c.id == bindparam("entry")).values(head_rev=bindparam("new_head"))
)
_SHARED_MOVE: Final = unanswered(
    update(entries)
    .where(entries.c.id == bindparam("entry"))
    .values(head_rev=bindparam("new_head"), shared_rev=bindparam("new_head"))
)
_VIEWS_CLOSE: Final = unanswered(
    update(views).where(views.c.id.in_(bindparam("ids", expanding=True))).values(to_rev=bindparam("closed"))
)
VIEWS: Final = insertion(views)
CHUNKS: Final = insertion(chunks)


def batched(items: Iterable[T], size: int = PATHS_A_STATEMENT) -> list[list[T]]:
    """The items in lists of at most `size`."""
    every = list(items)
    return [every[begin : begin + size] for begin in range(0, len(every), size)]


class StoredPath(Struct, frozen=True):
    """What is stored at a path: the content, what was appended to it, and the view; None where the run has none."""

    content: EntryVersion
    tail: int
    """Bytes of chunks after the content."""
    view: View | None


def find_at_paths(
    connection: Connection, run_id: int, own_scope: int, scopes: Collection[int], paths: Iterable[str]
) -> dict[tuple[str, int], StoredPath]:
    """What a run sees at these paths, by path and 0; by path and scope, other entries at them in these scopes."""
    found: dict[tuple[str, int], StoredPath] = {}
    for part in batched(paths):
        values = {"run_id": run_id, "scopes": scopes, "paths": part}
        for path, view, revision, tail, visibility, state, *row in connection.execute(_AT_PATHS, values):
            content = _content(row[5:])
            if view:
                seen = View(view, revision, VISIBILITIES[visibility], STATES[state], *row[:5])
                found[path, 0] = StoredPath(content, tail, seen)
            else:
                found[path, content.scope] = StoredPath(content, 0, None)
    if grown := [one.content.entry for (_, scope), one in found.items() if scope == own_scope]:
        tails = _tails(connection, grown)
        found = {
            at: replace(one, tail=tails[one.content.entry]) if at[1] == own_scope else one for at, one in found.items()
        }
    return found


def _tails(connection: Connection, ids: Iterable[int]) -> dict[int, int]:
    """By entry of a run, the bytes of everything that was ever appended to its latest version."""
    tails: dict[int, int] = {}
    for part in batched(ids):
        for entry, folded, offset, data in connection.execute(_TAILS, {"ids": part}):
            tails[entry] = max(folded, 0) if data is None else offset + len(data.encode())
    return tails


def _content(row: Sequence[Any]) -> EntryVersion:
    entry, scope, version, rev, digest, body_size_bytes, writer, attributes, record, create_ms = row
    return EntryVersion(
        entry, scope, version, rev, digest, body_size_bytes, TIERS[writer], attributes, record or b"", create_ms
    )


def load_bodies(connection: Connection, wanted: Mapping[EntryVersion, int]) -> dict[int, str]:
    """Whole bodies by version, given the length appended to each, whether compacted yet or not."""
    bodies: dict[int, str] = {}
    by_version = {content.version: (content, tail) for content, tail in wanted.items()}
    for part in batched(by_version):
        for version, stored_bytes, body in connection.execute(_BODIES, {"ids": part}):
            bodies[version] = _whole(connection, *by_version[version], stored_bytes, body)
    return bodies


def _whole(connection: Connection, content: EntryVersion, tail: int, stored_bytes: int, body: str) -> str:
    wanted = content.body_size_bytes + tail
    if stored_bytes == wanted:
        return body
    if stored_bytes > wanted:
        return body.encode()[:wanted].decode()
    values = {"entry": content.entry, "rev": content.rev, "bytes": tail}
    return "".join([body, *connection.execute(_CHUNKS, values).scalars()])


def move_heads(connection: Connection, heads: Sequence[tuple[int, int, bool]]) -> None:
    """Make newer versions, by entry and revision, the heads of their entries, in shared scopes or not."""
    for statement, shared in ((_HEADS_MOVE, False), (_SHARED_MOVE, True)):
        if values := [{"entry": entry, "new_head": head} for entry, head, is_shared in heads if is_shared is shared]:
            connection.execute(statement, values)


def close_views(connection: Connection, ids: Iterable[int], revision: int) -> None:
    for part in batched(ids):
        connection.execute(_VIEWS_CLOSE, {"ids": part, "closed": revision})

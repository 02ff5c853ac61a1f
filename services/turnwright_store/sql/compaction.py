"""Queries of compaction: which streamed bodies need it, their content, and the write that compacts them.

Source: architecture 3 (streaming bodies); docs/adr/0006.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct
from sqlalchemy import Connection, and_, bindparam, delete, func, literal_column, or_, select, update
from turnwright_values.types import State

from turnwright_store.sql.dialect import Packed
from turnwright_store.sql.keys import is_version
from turnwright_store.sql.tables import chunks, entries, projects, runs, versions, views

_CHUNKED: Final = (
    select(chunks.c.entry_id, chunks.c.version_rev, func.count().label("pieces"))
    .group_by(chunks.c.entry_id, chunks.c.version_rev)
    .subquery("chunked")
)
"""Answered from the primary key of the chunks alone."""

_GROWS: Final = and_(
    views.c.run_id == runs.c.id,
    views.c.path == entries.c.path,
    views.c.to_rev.is_(None),
    views.c.entry_id == entries.c.id,
    views.c.state == literal_column(str(int(State.STREAMING))),
)
"""Only the run that owns the scope appends to an entry."""

_WAITING: Final = (
    select(
        versions.c.id,
        versions.c.entry_id,
        versions.c.from_rev,
        versions.c.body_size_bytes,
        projects.c.name,
        runs.c.alias,
    )
    .select_from(_CHUNKED)
    .join(entries, entries.c.id == _CHUNKED.c.entry_id)
    .join(versions, is_version(_CHUNKED.c.entry_id, _CHUNKED.c.version_rev))
    .join(runs, runs.c.scope_id == entries.c.scope_id)
    .join(projects, projects.c.id == runs.c.project_id)
    .outerjoin(views, _GROWS)
    .where(or_(views.c.id.is_(None), _CHUNKED.c.pieces >= bindparam("pieces")))
    .order_by(_CHUNKED.c.entry_id, _CHUNKED.c.version_rev)
    .limit(bindparam("limit"))
)
_STORED: Final = select(versions.c.stored_bytes, versions.c.body).where(versions.c.id == bindparam("version"))
_PIECES: Final = (
    select(chunks.c.offset, chunks.c.data)
    .where(chunks.c.entry_id == bindparam("entry"), chunks.c.version_rev == bindparam("rev"))
    .order_by(chunks.c.offset)
)
_FOLD: Final = (
    update(versions)
    .where(versions.c.id == bindparam("version"), versions.c.stored_bytes == bindparam("before"))
    .values(
        stored_bytes=bindparam("after"),
        hash=bindparam("digest", type_=versions.c.hash.type),
        # Compressed outside the writer thread.
        body=bindparam("packed", type_=Packed()),
    )
)
_DROP: Final = delete(chunks).where(
    chunks.c.entry_id == bindparam("entry"),
    chunks.c.version_rev == bindparam("rev"),
    chunks.c.offset < bindparam("end"),
)


class UncompactedVersion(Struct, frozen=True):
    """A version with chunks."""

    version: int
    entry: int
    rev: int
    body_size_bytes: int
    project: str
    run: str


class VersionChunks(Struct, frozen=True):
    """The content of a version and its chunks."""

    stored_bytes: int
    body: str
    chunks: list[str]


def find_uncompacted(connection: Connection, pieces: int, limit: int) -> list[UncompactedVersion]:
    """Versions with chunks that nobody appends to any more, and those with this many chunks."""
    rows = connection.execute(_WAITING, {"pieces": pieces, "limit": limit})
    return [UncompactedVersion(*row) for row in rows]


def load_chunks(connection: Connection, one: UncompactedVersion) -> VersionChunks | None:
    """What to compact; None if it was compacted or removed meanwhile."""
    stored = connection.execute(_STORED, {"version": one.version}).one_or_none()
    found = connection.execute(_PIECES, {"entry": one.entry, "rev": one.rev}).all()
    if stored is None or not found:
        return None
    stored_bytes, body = stored
    first_offset, _ = found[0]
    if first_offset != stored_bytes - one.body_size_bytes:
        return None
    return VersionChunks(stored_bytes, body, [data for _, data in found])


def compact(connection: Connection, one: UncompactedVersion, before: int, after: int, digest: str, packed: Any) -> bool:
    """Merge chunks into their version, up to a length; returns whether it still had the expected length."""
    values = {"version": one.version, "before": before, "after": after, "digest": digest, "packed": packed}
    if connection.execute(_FOLD, values).rowcount != 1:
        return False
    connection.execute(_DROP, {"entry": one.entry, "rev": one.rev, "end": after - one.body_size_bytes})
    return True

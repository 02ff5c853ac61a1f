"""Streamed bodies: which have been silent for long, and a part of one read where it stands.

Source: architecture 3 (streaming bodies), 11 (streaming channels without a producer).
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, and_, bindparam, func, literal_column, or_, select
from turnwright_values.types import State

from turnwright_store.sql.dialect import DatabaseNow
from turnwright_store.sql.keys import number_in
from turnwright_store.sql.tables import chunks, projects, runs, versions, views
from turnwright_store.sql.views import EntryRow

StreamPosition = tuple[int, int]
"""Where a page of silent streams ends: time and key of its last view."""

_SILENT: Final = (
    select(projects.c.name, runs.c.alias, views.c.path, views.c.create_ms, views.c.id)
    .select_from(views)
    .join(runs, runs.c.id == views.c.run_id)
    .join(projects, projects.c.id == runs.c.project_id)
    .where(
        views.c.to_rev.is_(None),
        views.c.state == number_in(State.STREAMING),
        views.c.create_ms <= DatabaseNow() - bindparam("grace_ms"),
        or_(
            views.c.create_ms > bindparam("after_ms"),
            and_(views.c.create_ms == bindparam("after_ms"), views.c.id > bindparam("after_id")),
        ),
        runs.c.removed_ms == literal_column("0"),
    )
    .order_by(views.c.create_ms, views.c.id)
    .limit(bindparam("page"))
)
_FIRST: Final = (
    select(func.max(chunks.c.offset))
    .where(
        chunks.c.entry_id == bindparam("entry"),
        chunks.c.version_rev == bindparam("version"),
        chunks.c.offset <= bindparam("begin"),
    )
    .scalar_subquery()
)
_CHUNKS: Final = (
    select(chunks.c.offset, chunks.c.data)
    .where(
        chunks.c.entry_id == bindparam("entry"),
        chunks.c.version_rev == bindparam("version"),
        chunks.c.offset >= func.coalesce(_FIRST, literal_column("0")),
        chunks.c.offset < bindparam("end"),
    )
    .order_by(chunks.c.offset)
)
_STORED: Final = select(versions.c.stored_bytes).where(versions.c.id == bindparam("id"))
_BODY: Final = select(versions.c.body).where(versions.c.id == bindparam("id"))


def list_silent(
    connection: Connection, grace_ms: int, after: StreamPosition, page: int
) -> tuple[list[tuple[str, str, str]], StreamPosition | None]:
    """A page of streaming views without a write for this long (project, run, path), and where the next page begins."""
    values = {"grace_ms": grace_ms, "after_ms": after[0], "after_id": after[1], "page": page}
    rows = connection.execute(_SILENT, values).all()
    found = [(project, run, path) for project, run, path, _, _ in rows]
    return found, (rows[-1][3], rows[-1][4]) if len(rows) == page else None


def read_part(connection: Connection, shown: EntryRow, begin: int, end: int) -> bytes:
    """A range of bytes of a body as its view shows it, without reading the rest."""
    stored = int(connection.execute(_STORED, {"id": shown.content}).scalar_one())
    parts: list[bytes] = []
    if begin < stored:
        body: str = connection.execute(_BODY, {"id": shown.content}).scalar_one()
        parts.append(body.encode()[begin:end])
    if end > stored:
        parts.append(_chunked(connection, shown, max(begin, stored), end))
    return b"".join(parts)


def _chunked(connection: Connection, shown: EntryRow, begin: int, end: int) -> bytes:
    base = shown.version_bytes
    values: dict[str, Any] = {
        "entry": shown.entry,
        "version": shown.version,
        "begin": begin - base,
        "end": end - base,
    }
    rows = connection.execute(_CHUNKS, values).all()
    if not rows:
        return b""
    first = rows[0][0]
    data = b"".join(text.encode() for _, text in rows)
    return data[begin - base - first : end - base - first]

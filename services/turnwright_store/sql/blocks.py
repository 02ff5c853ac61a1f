"""Rows of blocks: the texts that packets consist of, each stored once in a project.

Most of a text is the body of the entry that it shows. Such a block leans on the version that holds the body: it keeps
what the path and the body do not say. Paths stay, and bodies only ever grow, at their end: what a block leans on is
there as long as its version is. A block whose version goes is made whole in the transaction that deletes it.
Source: architecture 3 (what the model was sent).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import bindparam, insert, literal_column, select, update

from turnwright_core.entries import State
from turnwright_core.limits import SHOWN_BYTES_MAX, SHOWN_BYTES_MIN
from turnwright_store.ports import Connection
from turnwright_store.sql.entries import of_seen_paths, parts
from turnwright_store.sql.packing import packed_by, unpacked_by
from turnwright_store.sql.tables import blocks, entries, versions, views

_SHORTER: Final = 4
"""A block depends on a body only if that makes it this many times shorter."""

_AT_ONCE: Final = 100
"""Bodies in memory at a time."""

_KNOWN: Final = select(blocks.c.digest, blocks.c.id).where(
    blocks.c.project_id == bindparam("project"), blocks.c.digest.in_(bindparam("digests", expanding=True))
)
_ADD: Final = insert(blocks).returning(blocks.c.digest, blocks.c.id)
_STORED: Final = (blocks.c.id, blocks.c.text, blocks.c.body_size_bytes, entries.c.path, versions.c.body)
_TEXTS: Final = (
    select(*_STORED)
    .select_from(blocks)
    .outerjoin(versions, versions.c.id == blocks.c.version_id)
    .outerjoin(entries, entries.c.id == versions.c.entry_id)
    .where(blocks.c.id.in_(bindparam("ids", expanding=True)))
)
_SHOWN: Final = of_seen_paths(entries.c.path, versions.c.id, versions.c.body).where(
    # A growing body may become long.
    views.c.state != literal_column(str(int(State.STREAMING))),
    versions.c.stored_bytes.between(SHOWN_BYTES_MIN, SHOWN_BYTES_MAX),
)
_LEANING: Final = (
    select(*_STORED)
    .select_from(blocks)
    .join(versions, versions.c.id == blocks.c.version_id)
    .join(entries, entries.c.id == versions.c.entry_id)
    .where(blocks.c.version_id.in_(bindparam("ids", expanding=True)))
)
_MAKE_WHOLE: Final = (
    update(blocks)
    .where(blocks.c.id == bindparam("block"))
    .values(text=bindparam("whole", type_=blocks.c.text.type), version_id=None, body_size_bytes=literal_column("0"))
)


class ShownBody(Struct, frozen=True):
    """A body that a run sees."""

    version: int
    path: str
    """Path of its entry, which occurs several times in a text that shows the body."""
    body: bytes


class StoredBlock(Struct, frozen=True):
    """The stored form of a text."""

    text: bytes
    """Made by `packed_by`, with the body that it depends on."""
    version_id: int | None
    """The version with the body; None: the block is self-contained."""
    body_size_bytes: int
    """Length of the part of the body that it depends on, from its beginning."""


def block_of(text: str, shown: ShownBody | None) -> StoredBlock:
    """Encode a text against the body that it may show; self-contained if that saves little."""
    if shown is not None:
        rest = packed_by(text, _example(shown.path, shown.body))
        if len(rest) * _SHORTER < len(text):
            return StoredBlock(rest, shown.version, len(shown.body))
    return StoredBlock(packed_by(text), None, 0)


class Prefetched(Struct, frozen=True):
    """Prefetched query results for the texts of a packet, so that they take one round trip."""

    known: Sequence[Any]
    shown: Any = None
    """Bodies that the texts may show; None: queried once it is known which texts are new."""


def prefetch_known(
    connection: Any, run_id: int, project_id: int, texts: Mapping[str, str], shows: Mapping[str, str]
) -> Prefetched:
    """Query which of some texts, by digest, a project has, and the bodies that they show."""
    known = [connection.prefetch(_KNOWN, {"project": project_id, "digests": part}) for part in parts(texts)]
    paths = _paths(texts.values(), shows) if connection.is_remote else ()
    if not paths or len(paths) > _AT_ONCE:
        return Prefetched(known)
    return Prefetched(known, connection.prefetch(_SHOWN, {"run_id": run_id, "paths": list(paths)}))


def known_blocks(asked: Prefetched) -> dict[str, int]:
    """Ids of those blocks that a project has, by digest."""
    return {digest: block for rows in asked.known for digest, block in rows}


def add_blocks(
    connection: Connection,
    run_id: int,
    project_id: int,
    texts: Mapping[str, str],
    shows: Mapping[str, str],
    asked: Prefetched,
) -> dict[str, int]:
    """Ids of new blocks, by digest; `shows` maps a text to the path of the entry whose body it shows."""
    values: list[dict[str, Any]] = []
    bodies = _bodies(asked.shown or ())
    for some in parts(texts.items(), _AT_ONCE):
        paths = _paths((text for _, text in some), shows) if asked.shown is None else ()
        if paths:
            bodies = _bodies(connection.execute(_SHOWN, {"run_id": run_id, "paths": list(paths)}))
        for digest, text in some:
            block = block_of(text, bodies.get(shows.get(text, "")))
            values.append({"project_id": project_id, "digest": digest, **asdict(block)})
    return dict(connection.execute(_ADD, values).all()) if values else {}


def _paths(texts: Iterable[str], shows: Mapping[str, str]) -> set[str]:
    """Paths of entries whose body can pay off: no text is much shorter than that."""
    return {path for text in texts if len(text) >= SHOWN_BYTES_MIN and (path := shows.get(text))} if shows else set()


def _bodies(rows: Iterable[Any]) -> dict[str, ShownBody]:
    return {path: ShownBody(version, path, body.encode()) for path, version, body in rows}


def block_texts(connection: Connection, ids: Sequence[int]) -> dict[int, str]:
    return {block: _whole(*row) for block, *row in connection.execute(_TEXTS, {"ids": list(ids)})}


def make_whole(connection: Connection, version_ids: Iterable[int]) -> None:
    """Make blocks self-contained that depend on some versions, which are deleted next."""
    for part in parts(version_ids, _AT_ONCE):
        found = connection.execute(_LEANING, {"ids": part})
        whole = [{"block": block, "whole": packed_by(_whole(*row))} for block, *row in found]
        if whole:
            connection.execute(_MAKE_WHOLE, whole)


def _whole(text: bytes, body_size_bytes: int, path: str | None, body: str | None) -> str:
    if path is None or body is None:
        return unpacked_by(text)
    return unpacked_by(text, _example(path, body.encode()[:body_size_bytes]))


def _example(path: str, body: bytes) -> bytes:
    return b"\n".join((path.encode(), body))

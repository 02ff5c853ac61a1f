"""Compaction of streamed bodies: appended chunks are merged into the body in the background.

Theory of operation. An append is a separate row, and the view that shows it stores the length of the body at that time.
When nobody appends any more, the rows are joined, hashed and compressed on a reader connection; one write then stores
the result and deletes the rows. Readers see no difference: readers of every revision take as many bytes as their view
says, from the version first, then from chunks. No revision changes. If the version has changed in the meantime, the
write does nothing, and the next round finds it again.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import Connection
from turnwright_values.store import Durability

from turnwright_store.app.maintenance import Chore
from turnwright_store.domain.locks import run_lock
from turnwright_store.ports import Database, Transaction
from turnwright_store.sql import compaction as rows
from turnwright_store.sql.compression import WRITERS

PIECES_MAX: Final = 4096
"""Number of chunks from which a growing body is compacted; at 4 KB each they make the longest body."""

BODIES_MAX: Final = 16
"""Bodies that one round compacts."""

BYTES_MAX: Final = 16 * 1024 * 1024
"""Total size of bodies after which a round takes no more."""


class CompactedBody(Struct, frozen=True):
    """A body merged with its chunks, ready to be stored."""

    waiting: rows.UncompactedVersion
    before: int
    """Size of the stored body that it was made from."""
    after: int
    digest: str
    packed: Any


def compaction(database: Database, every_s: float) -> Chore:
    return Chore("compaction", every_s, partial(compact_some, database), follows=database)


async def compact_some(database: Database, pieces_max: int = PIECES_MAX) -> bool:
    """Compact some bodies; returns whether there may be more. A body that still grows needs PIECES_MAX chunks."""
    folded = await database.read(partial(prepare, pieces_max=pieces_max))
    if not folded:
        return False
    locks = {run_lock(one.waiting.project, one.waiting.run) for one in folded}
    return await database.write(partial(store, folded=folded), Durability.NORMAL, locks)


def prepare(connection: Connection, pieces_max: int = PIECES_MAX) -> list[CompactedBody]:
    """Join the chunks of some bodies that wait for compaction."""
    folded: list[CompactedBody] = []
    for waiting in rows.find_uncompacted(connection, pieces_max, BODIES_MAX):
        if sum(one.after for one in folded) >= BYTES_MAX:
            break
        pieces = rows.load_chunks(connection, waiting)
        if pieces is not None:
            folded.append(_joined(connection, waiting, pieces))
    return folded


def _joined(connection: Connection, waiting: rows.UncompactedVersion, pieces: rows.VersionChunks) -> CompactedBody:
    body = "".join([pieces.body, *pieces.chunks])
    data = body.encode()
    digest = hashlib.sha256(data).hexdigest()
    stored = WRITERS[connection.dialect.name]["CompressedText"](body)
    return CompactedBody(waiting, pieces.stored_bytes, len(data), digest, stored)


def store(tx: Transaction, folded: list[CompactedBody]) -> bool:
    """Store merged bodies that have not changed since they were read; returns whether there were any."""
    done = [rows.compact(tx.connection, one.waiting, one.before, one.after, one.digest, one.packed) for one in folded]
    return any(done)

"""Compaction of streamed bodies: appended chunks become part of the body, outside of everybody's commits.

Theory of operation. An append is a row of its own, and the view that shows it says how long the body is by then. Once
nobody appends any more, the rows are joined, digested and packed on a reader connection; one write then stores the
result and drops the rows. Nobody sees a difference: readers of every revision take as many bytes as their view says,
from the version first, then from chunks. No revision is raised. A write whose version has changed since does nothing;
the next look finds it again.

An append costs the same for any length of body, but each is a row: callers gather text to 4 KB or 100 ms. A body that
goes on growing is compacted too, once it has gathered many pieces.

Source: architecture 3 (streaming bodies), 12.7.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any, Final

from msgspec import Struct

from turnwright_store.app.maintenance import Chore
from turnwright_store.domain.locks import run_lock
from turnwright_store.ports import Connection, Database, Durability, Transaction
from turnwright_store.sql import compaction as rows

PIECES_MAX: Final = 4096
"""Chunks of a body that still grows from which it is compacted; at 4 KB each they make the longest body."""

BODIES_MAX: Final = 16
"""Bodies that one piece of the chore compacts."""

BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of bodies after which a piece of the chore takes no more of them."""


class CompactedBody(Struct, frozen=True):
    """A body with its chunks, ready to be stored."""

    waiting: rows.Waiting
    before: int
    """Bytes of the stored body that it was made of."""
    after: int
    digest: str
    packed: Any


def compaction(database: Database, every_s: float) -> Chore:
    return Chore("compaction", every_s, partial(compact_some, database), follows=database)


async def compact_some(database: Database, pieces_max: int = PIECES_MAX) -> bool:
    """Compact some bodies; returns whether there may be more. One that still grows needs so many pieces."""
    folded = await database.read(partial(prepare, pieces_max=pieces_max))
    if not folded:
        return False
    locks = {run_lock(one.waiting.project, one.waiting.run) for one in folded}
    return await database.write(partial(store, folded=folded), Durability.NORMAL, locks)


def prepare(connection: Connection, pieces_max: int = PIECES_MAX) -> list[CompactedBody]:
    """Join the chunks of some bodies that wait for compaction."""
    folded: list[CompactedBody] = []
    for waiting in rows.find_waiting(connection, pieces_max, BODIES_MAX):
        if sum(one.after for one in folded) >= BYTES_MAX:
            break
        pieces = rows.load_pieces(connection, waiting)
        if pieces is not None:
            folded.append(_joined(connection, waiting, pieces))
    return folded


def _joined(connection: Connection, waiting: rows.Waiting, pieces: rows.Pieces) -> CompactedBody:
    body = "".join([pieces.body, *pieces.chunks])
    data = body.encode()
    digest = hashlib.sha256(data).hexdigest()
    return CompactedBody(waiting, pieces.stored_bytes, len(data), digest, rows.pack(connection, body))


def store(tx: Transaction, folded: list[CompactedBody]) -> bool:
    """Store joined bodies that are still as they were read; whether any was."""
    done = [rows.compact(tx.connection, one.waiting, one.before, one.after, one.digest, one.packed) for one in folded]
    return any(done)

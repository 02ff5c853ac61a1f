"""Garbage collection of what runs share: blocks of packets, and old versions of shared entries.

Theory of operation. A run only reads versions of shared entries since its creation, so a version that was replaced
before the oldest run was created is unused. Which blocks are in use is stored in the layouts, which SQL cannot search.
So this is mark and sweep: all layouts of the project are read first, on a reader connection. Each transaction that
deletes then reads the layouts stored since, under the lock that storing a packet takes.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from turnwright_store.domain.locks import packets_lock
from turnwright_store.domain.packets import own_blocks
from turnwright_store.ports import Database, Durability, Transaction
from turnwright_store.sql import block_gc as rows
from turnwright_store.sql.retention import entries_after

_ROWS_A_PIECE: Final = 500
_MARGIN_MS: Final = 60_000
"""Transactions carry the time at which they began, and may commit out of order."""


async def sweep_versions(database: Database, project_id: int | None, lock: str, after_ms: int) -> None:
    """Delete versions of a project's (or the global) entries that were replaced before its oldest run was created.

    A run counts until `after_ms` milliseconds after its removal; a transaction may take as long, too.
    """

    def begin(tx: Transaction) -> tuple[int, int]:
        oldest_ms = rows.oldest_run(tx.connection, project_id, tx.now_ms - after_ms)
        before_ms = (tx.now_ms if oldest_ms is None else oldest_ms) - after_ms
        return rows.shared_scope(tx.connection, project_id), before_ms

    scope, before_ms = await database.write(begin, Durability.NORMAL, ())
    path = ""
    while page := await database.read(partial(entries_after, scope=scope, after=path, page=_ROWS_A_PIECE)):
        query = partial(
            rows.replaced_versions, entries=[entry for entry, _ in page], before_ms=before_ms, page=_ROWS_A_PIECE
        )
        while replaced := await database.read(query):
            await database.write(partial(_drop_versions, ids=replaced), Durability.NORMAL, {lock})
        path = page[-1][1]


def _drop_versions(tx: Transaction, ids: list[int]) -> None:
    rows.drop_versions(tx.connection, ids)


async def sweep_blocks(database: Database, project_id: int, project: str) -> None:
    """Delete a project's unused blocks, in many short transactions."""
    start_ms = await database.write(lambda tx: tx.now_ms, Durability.NORMAL, ())
    used: set[int] = set()
    latest: dict[int, int] = {}
    for run_id in await database.read(partial(rows.all_runs, project_id=project_id)):
        for turn, layout in await database.read(partial(rows.layouts_since, run_id=run_id, turn=0)):
            used |= own_blocks(layout)
            latest[run_id] = max(turn, latest.get(run_id, 0))
    sweep = partial(_sweep, project_id=project_id, since_ms=start_ms - _MARGIN_MS, used=used, latest=latest)
    after: str | None = ""
    while after is not None:
        after = await database.write(partial(sweep, after=after), Durability.NORMAL, {packets_lock(project)})


def _sweep(
    tx: Transaction, project_id: int, since_ms: int, used: set[int], latest: dict[int, int], after: str
) -> str | None:
    """Delete some; returns the digest to continue after, None at the end."""
    for run_id in rows.active_runs(tx.connection, project_id, since_ms):
        for _, layout in rows.layouts_since(tx.connection, run_id, latest.get(run_id, 0)):
            used |= own_blocks(layout)
    page = rows.blocks_after(tx.connection, project_id, after, _ROWS_A_PIECE)
    rows.drop_blocks(tx.connection, [block for _, block in page if block not in used])
    return page[-1][0] if page else None

"""Unclaimable loops: marks queued loops whose workspace no living executor has, so that watchers see the reason.

Source: architecture 3 (a project lives in a workspace); the reason is cleared when the run is claimed.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from sqlalchemy import Connection
from turnwright_values.store import Durability

from turnwright_store.app.maintenance import Chore
from turnwright_store.domain.locks import REGISTRY_LOCK, run_lock
from turnwright_store.domain.names import RunRef
from turnwright_store.ports import Database, Transaction
from turnwright_store.sql import leases as lease_rows
from turnwright_store.sql import work as work_rows
from turnwright_store.sql.runs import bump_revision, find_run, write_run

RUNS_MAX: Final = 50
"""Runs that one round marks at most."""


def find_unclaimable(connection: Connection, wait_ms: int, grace_ms: int) -> list[RunRef]:
    """Some runs whose queued loops have waited this long for a workspace that nobody has."""
    if not lease_rows.has_registered_workspaces(connection):
        return []
    offered = lease_rows.offered_workspaces(connection, grace_ms)
    if offered is None:
        return []
    now_ms = lease_rows.read_now(connection)
    return [RunRef(*one) for one in work_rows.list_unclaimable(connection, offered, now_ms - wait_ms, RUNS_MAX)]


def mark_unclaimable(tx: Transaction, found: list[RunRef], grace_ms: int) -> None:
    """Write the reason to the queued loops of those runs that still wait."""
    offered = lease_rows.offered_workspaces(tx.connection, grace_ms)
    for address in found:
        run = find_run(tx.connection, address.project, address.run)
        if run is None or run.loop_active or offered is None or run.workspace_id in offered:
            continue
        run = bump_revision(tx, run)
        work_rows.set_reason_of_queued(tx.connection, run.id, work_rows.UNAVAILABLE, run.revision_run)
        write_run(tx, run)


def unclaimable_loops(database: Database, wait_ms: int, grace_ms: int) -> Chore:
    """The chore. It checks twice within the time after which a loop is marked."""

    async def step() -> bool:
        found = await database.read(partial(find_unclaimable, wait_ms=wait_ms, grace_ms=grace_ms))
        if found:
            locks = {REGISTRY_LOCK, *(run_lock(one.project, one.run) for one in found)}
            await database.write(partial(mark_unclaimable, found=found, grace_ms=grace_ms), Durability.NORMAL, locks)
        return len(found) == RUNS_MAX

    return Chore("unclaimable_loops", wait_ms / 2000, step)

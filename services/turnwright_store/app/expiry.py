"""Settles proposals that nobody decided in time, on the database's clock: no executor is needed for it.

The record is cancelled with a reason, and its run has work again: whoever claims it finds a rejection without a
comment, and the loop ends. Source: architecture 11 (a proposal stays pending); decision C20.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from turnwright_core.entries import State
from turnwright_store.app.maintenance import Chore
from turnwright_store.app.proposals import expired, find_record, write_decision
from turnwright_store.domain.basis import Basis
from turnwright_store.domain.locks import run_lock
from turnwright_store.ports import Database, Durability, Transaction
from turnwright_store.sql.inbox import list_overdue
from turnwright_store.sql.runs import find_run
from turnwright_store.sql.views import find_shown

PROPOSALS_MAX: Final = 50
"""Proposals that one piece of the work settles at most."""

LOOKS: Final = 4
"""How often in its time a proposal is looked at."""

EVERY_S_MAX: Final = 5.0
"""Longest time between two looks, in seconds."""

_STORE: Final = "store"
"""Who writes what expires."""


def settle_overdue(tx: Transaction, basis: Basis, overdue: list[tuple[str, str, str]], wait_ms: int) -> None:
    """Settle those of some proposals that still wait."""
    for project, alias, path in overdue:
        run = find_run(tx.connection, project, alias)
        shown = find_shown(tx.connection, run.id, [path]).get(path) if run else None
        if run is None or shown is None or shown.state != State.PROPOSED or shown.view_ms > tx.now_ms - wait_ms:
            continue
        record = find_record(tx, run, path)
        write_decision(tx, basis, run, record, expired(record, wait_ms, tx.now_ms), _STORE)


def expiry(database: Database, basis_now: Callable[[], Basis], wait_ms: int) -> Chore:
    """The chore for proposals that may wait so many milliseconds."""

    async def piece() -> bool:
        overdue = await database.read(partial(list_overdue, wait_ms=wait_ms, page=PROPOSALS_MAX))
        if overdue:
            work = partial(settle_overdue, basis=basis_now(), overdue=overdue, wait_ms=wait_ms)
            locks = {run_lock(project, run) for project, run, _ in overdue}
            await database.write(work, Durability.FULL, locks)
        return len(overdue) == PROPOSALS_MAX

    return Chore("expiry", min(wait_ms / 1000 / LOOKS, EVERY_S_MAX), piece)

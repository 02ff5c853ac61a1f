"""Expiry of proposals that were not decided in time, by the database's clock; no executor is involved.

The record is cancelled with a reason, and its run has work again: its next owner finds a rejection without a comment,
and the loop ends. Source: architecture 11 (a proposal stays pending); decision C20.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from turnwright_core.entries import State
from turnwright_store.app.maintenance import Chore, poll_interval_s, process_row
from turnwright_store.app.proposals import expiry_decision, find_record, write_decision
from turnwright_store.domain.locks import run_lock
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Database, Durability, Transaction
from turnwright_store.sql.inbox import list_overdue
from turnwright_store.sql.runs import find_run
from turnwright_store.sql.views import find_shown

PROPOSALS_MAX: Final = 50
"""Maximum number of proposals that one round expires."""

_STORE: Final = "store"
"""The caller in whose name proposals expire."""

Overdue = tuple[str, str, str]
"""Project, run and path of a proposal."""


def expire_proposal(tx: Transaction, rules: StoreRules, overdue: Overdue, wait_ms: int) -> None:
    """Expire a proposal, if it still waits."""
    project, alias, path = overdue
    run = find_run(tx.connection, project, alias)
    shown = find_shown(tx.connection, run.id, [path]).get(path) if run else None
    if run is None or shown is None or shown.state != State.PROPOSED or shown.view_ms > tx.now_ms - wait_ms:
        return
    record = find_record(tx, run, path)
    write_decision(tx, rules, run, record, expiry_decision(record, wait_ms, tx.now_ms), _STORE)


async def _expire_one(database: Database, rules: StoreRules, overdue: Overdue, wait_ms: int) -> bool:
    project, run, path = overdue
    work = partial(expire_proposal, rules=rules, overdue=overdue, wait_ms=wait_ms)
    writing = database.write(work, Durability.FULL, {run_lock(project, run)})
    return await process_row(writing, "expiry", project=project, run=run, path=path)


def proposal_expiry(database: Database, rules_now: Callable[[], StoreRules], wait_ms: int) -> Chore:
    """The chore that expires proposals after this many milliseconds."""

    async def step() -> bool:
        overdue = await database.read(partial(list_overdue, wait_ms=wait_ms, page=PROPOSALS_MAX))
        settled = [await _expire_one(database, rules_now(), one, wait_ms) for one in overdue]
        return len(settled) == PROPOSALS_MAX and all(settled)

    return Chore("expiry", poll_interval_s(wait_ms), step)

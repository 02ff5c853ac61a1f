"""File adoption: a new run gets the file views of another run of its project, with one statement.

Each run has a view of each file, so that its history says what it saw. The content that the views show belongs to the
project: only these rows are new, so a new run of a large project need not send or store known files. Source:
architecture 3; rows RU115, RU165; docs/adr/0026.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from turnwright_core.checks import over_limit
from turnwright_store.app.commit_delta import publish
from turnwright_store.app.ledger import check_fence
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Transaction
from turnwright_store.sql import project_files as rows
from turnwright_store.sql.runs import RunHead, RunRow, get_run_head
from turnwright_store.sql.scopes import ScopePosition, bump_if_unchanged

AT_ONCE_MAX: Final = 500
"""Files that a run adopts when it is created, in the event loop: that takes about a millisecond."""


def adopt_files(
    tx: Transaction, rules: StoreRules, address: RunRef, epoch: int, like_run: str
) -> list[tuple[str, str]]:
    """Copy the file views of another run to a run without any; returns its files then, with hashes.

    Raises LEASE_LOST, LIMIT_EXCEEDED.
    """
    run = get_run_head(tx.connection, address.project, address.run)
    check_fence(run, epoch)
    seen = rows.files_seen(tx.connection, run.id)
    most = rules.limits.run_entries_max + 1
    adoptable = rows.adoptable(tx.connection, run, like_run, most) if like_run and not seen else []
    if not adoptable:
        return seen
    reached = _adopt(tx, rules, run, like_run, len(adoptable))
    publish(tx, rules, replace(run, revision_run=reached.revision), shows_files=True)
    return adoptable


def adopt_at_once(tx: Transaction, rules: StoreRules, run: RunRow, like_run: str) -> dict[str, str] | None:
    """The same in the transaction that has created the run.

    Nothing is adopted, and None returned, where that may fail or take long: the run is created all the same.
    """
    most = min(AT_ONCE_MAX, rules.limits.run_entries_max - run.positions)
    files = rows.adoptable(tx.connection, run, like_run, most + 1)
    if not 0 < len(files) <= most:
        return None
    _adopt(tx, rules, run, like_run, len(files))
    return dict(files)


def _adopt(tx: Transaction, rules: StoreRules, run: RunHead, like_run: str, count: int) -> ScopePosition:
    reached = bump_if_unchanged(tx, run.scope, ScopePosition(run.revision_run, run.positions), count)
    if reached.positions > rules.limits.run_entries_max:
        raise over_limit("run_entries", rules.limits.run_entries_max, reached.positions, "entries")
    made = rows.AdoptedViews(
        revision=reached.revision,
        turn=run.turn_open or run.turn + 1,
        loop=run.loop_active,
        positions=reached.positions - count,
        now_ms=tx.now_ms,
    )
    rows.adopt(tx.connection, run, like_run, made)
    return reached

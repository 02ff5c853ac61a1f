"""The revision that a transaction gives a run, and where the records of its turns stand."""

from __future__ import annotations

from msgspec.structs import replace

from turnwright_store.ports import Transaction
from turnwright_store.sql.runs import RunRow
from turnwright_store.sql.scopes import ScopePosition, bump_if_unchanged


def records_prefix(turn: int) -> str:
    """The path prefix of a turn's records (RU075)."""
    return f"log://turn_{turn}/"


def bump_revision(tx: Transaction, run: RunRow) -> RunRow:
    """The run at the revision that this transaction gives its scope."""
    if run.scope not in tx.bumped:
        bump_if_unchanged(tx, run.scope, ScopePosition(run.revision_run, run.positions), 0)
    revision = tx.bumped[run.scope]
    return run if run.revision_run == revision else replace(run, revision_run=revision)

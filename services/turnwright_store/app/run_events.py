"""Paths of the store's own events in a run."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace
from turnwright_values.store import EntryWrite

from turnwright_core.events import RunEvent, event_write
from turnwright_store.app.apply_writes import apply_writes
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Transaction
from turnwright_store.sql.runs import RunHead
from turnwright_store.sql.views import find_entry_rows


def turn_of_cause(run: RunHead, *, is_owners: bool) -> int:
    """The turn of an event: the open turn for its owner, otherwise the latest ended one."""
    return run.turn - 1 if run.turn_open and not is_owners else run.turn


def new_event(tx: Transaction, run: RunHead, turn: int, event: RunEvent) -> EntryWrite:
    """The write of an event, with a suffix if its path is taken: the same can happen twice in a turn."""
    write = event_write(turn, event)
    return replace(write, path=free_path(tx, run, write.path))


def write_event(tx: Transaction, rules: StoreRules, run: RunHead, actor: str, event: RunEvent) -> RunHead:
    """Write an event that no owner has caused, even if the run is full; returns the run."""
    write = new_event(tx, run, turn_of_cause(run, is_owners=False), event)
    return apply_writes(tx, rules, run, [write], actor, is_unbounded=True).run


def free_path(tx: Transaction, run: RunHead, path: str) -> str:
    """The path, or the first of `path+2`, `path+3`, ... that the run does not see."""
    first = 1
    while True:
        candidates = [path if number == 1 else f"{path}+{number}" for number in range(first, first + _CANDIDATES)]
        shown = find_entry_rows(tx.connection, run.id, candidates)
        free = next((candidate for candidate in candidates if candidate not in shown), None)
        if free:
            return free
        first += _CANDIDATES


_CANDIDATES: Final = 50
"""Paths to check at a time."""

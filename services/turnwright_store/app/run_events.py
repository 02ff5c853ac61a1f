"""Where the store's own events stand in a run."""

from __future__ import annotations

from turnwright_store.sql.runs import RunHead


def turn_of_cause(run: RunHead, *, is_owners: bool) -> int:
    """The turn that an event belongs to: an owner acts in the open turn, anybody else behind the latest ended one."""
    return run.turn - 1 if run.turn_open and not is_owners else run.turn

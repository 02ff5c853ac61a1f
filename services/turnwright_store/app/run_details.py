"""A run with what people are shown of it: loops, turns, spend, what waits for a decision, and its history.

Source: rows RU238, RU247, RU248.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from msgspec import Struct
from sqlalchemy import Connection
from turnwright_values.types import Entry, Loop, Run, Spend, Turn, ViewFilter

from turnwright_core.checks import check_count
from turnwright_core.limits import EVENT_BODY_BYTES_MAX, PAGE_SIZE_MAX
from turnwright_store.app import registry
from turnwright_store.app.control import get_spend
from turnwright_store.app.read_view import weight_of
from turnwright_store.domain.message_sizes import loop_bytes, turn_bytes
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.sql.contents import load_entries
from turnwright_store.sql.inbox import entry_rows_of, page_of_waiting
from turnwright_store.sql.loops import list_loops
from turnwright_store.sql.runs import RunHead, get_run
from turnwright_store.sql.turns import list_turns
from turnwright_store.sql.views import EntryRow, Wanted, snapshot

LOOPS_MAX: Final = 100
UNKNOWNS_MAX: Final = 1000
PART_BYTES: Final = 512 * 1024
"""Approximate maximum size of each part of an answer, in bytes."""

_AUDIT: Final = ("audit", "hidden")
_TIMELINE: Final = Wanted(ViewFilter.TIMELINE, body_bytes_max=EVENT_BODY_BYTES_MAX)

T = TypeVar("T")


class RunDetails(Struct, frozen=True):
    """A run; lists begin with the latest, those of entries are in the order of the timeline."""

    run: Run
    private_to: str | None
    loops: list[Loop]
    turns: list[Turn]
    latest: Turn | None
    spent: Spend
    loop_spent: Spend
    proposals: list[str]
    """Paths of what waits for a decision."""
    history: list[Entry]
    unknowns: list[Entry]
    """The open questions of the model."""


def get_run_details(
    connection: Connection, rules: StoreRules, address: RunRef, turns_max: int, history_max: int
) -> RunDetails:
    """A run with its latest turns and timeline entries, as many as are asked for and fit. Raises LIMIT_EXCEEDED."""
    check_count("turns_max", turns_max, PAGE_SIZE_MAX)
    check_count("history_max", history_max, PAGE_SIZE_MAX)
    run = get_run(connection, address.project, address.run)
    turns = _fitting(list_turns(connection, run.id, run.turn + 1, max(turns_max, 1)), turn_bytes)
    spent, loop_spent = get_spend(connection, run, 0)
    waiting = page_of_waiting(connection, None, [run.id], (0, 0), PAGE_SIZE_MAX)
    proposed = entry_rows_of(connection, [one.view for one in waiting])
    history, unknowns = _timeline(connection, rules, run, history_max) if history_max else ([], [])
    return RunDetails(
        registry.with_origin(connection, run),
        run.private_to,
        _fitting(list_loops(connection, run.id, run.loops + 1, LOOPS_MAX), loop_bytes),
        turns[:turns_max],
        turns[0] if turns else None,
        spent,
        loop_spent,
        sorted(one.path for one in proposed.values()),
        history,
        unknowns,
    )


def _timeline(
    connection: Connection, rules: StoreRules, run: RunHead, history_max: int
) -> tuple[list[Entry], list[Entry]]:
    """The latest entries of a run except stored packets, and its open questions."""
    shown = [
        (row, category)
        for row in snapshot(connection, run, _TIMELINE, rules.hidden_schemes)
        if (category := rules.scheme(row.scheme).category) not in _AUDIT
    ]
    latest = _fitting((row for row, _ in shown[: -history_max - 1 : -1]), _weight)
    unknown = _fitting([row for row, category in shown if category == "unknown"][:UNKNOWNS_MAX], _weight)
    return load_entries(connection, run, latest[::-1], _TIMELINE), load_entries(connection, run, unknown, _TIMELINE)


def _weight(row: EntryRow) -> int:
    return weight_of(row, _TIMELINE)


def _fitting(items: Iterable[T], weight: Callable[[T], int]) -> list[T]:
    """As many of the first items as fit, but at least one."""
    found: list[T] = []
    room = PART_BYTES
    for item in items:
        room -= weight(item)
        if found and room < 0:
            break
        found.append(item)
    return found

"""Forks: a new run that starts with another one's view; it costs a copy of the view's rows.

Source: architecture 3 (forks); rows RU060, RU064, RU219; C18.

File adoption: a new run gets the file views of another run of its project, with one statement.

Each run has a view of each file, so that its history says what it saw. The content that the views show belongs to the
project: only these rows are new, so a new run of a large project need not send or store known files. Source:
architecture 3; rows RU115, RU165; docs/adr/0026.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Run, State, Tier

from turnwright_core.checks import over_limit
from turnwright_core.wire.command_records import may_have_happened
from turnwright_kit.identity.caller import Caller
from turnwright_store.app.apply_writes import apply_writes
from turnwright_store.app.commit_delta import publish
from turnwright_store.app.history import get_turn_home
from turnwright_store.app.inheritance import asked_at
from turnwright_store.app.ledger import check_fence
from turnwright_store.app.registry import check_alias_free, generate_alias
from turnwright_store.domain.checks import RUN_ALIAS, check_name
from turnwright_store.domain.names import RunRef, place_name
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Transaction
from turnwright_store.sql import forks as rows
from turnwright_store.sql.contents import find_entry
from turnwright_store.sql.loops import settings_json
from turnwright_store.sql.registry import get_project
from turnwright_store.sql.runs import RunHead, RunRow, get_run, get_run_head
from turnwright_store.sql.scopes import ScopePosition, add_scope, bump_if_unchanged, bump_scope

_UNDER_WAY: Final = SetEntry(
    "It was under way when its run was forked. Look whether it happened before you do it again.",
    state=State.FAILED,
    outcome="indeterminate:500",
)


def fork_run(tx: Transaction, rules: StoreRules, caller: Caller, address: RunRef, alias: str, turn: int) -> Run:
    """Fork a run as it is now (`turn` 0), or as it was at the end of a turn.

    Raises RUN_NOT_FOUND, RUN_EXISTS, TURN_NOT_FOUND.
    """
    owner = get_project(tx.connection, address.project)
    parent = get_run(tx.connection, address.project, address.run)
    if alias:
        check_name("new_run", alias, RUN_ALIAS)
        check_alias_free(tx.connection, address.project, alias)
    else:
        alias = generate_alias(tx, address.project, parent.run.settings.model)
    home = get_turn_home(tx.connection, parent, turn) if turn else None
    source, revision = (home.run_id, home.revision) if home else (parent.id, parent.revision_run)
    # The number of an open turn is taken: its records are in the view.
    number, ended = (turn, turn) if home else (parent.run.turn, rows.latest_ended(tx.connection, parent.id))
    scope = add_scope(tx, f"run:{owner.id}:{alias}")
    first, _ = bump_scope(tx, scope, rows.positions_of(tx.connection, parent.id))
    asked = asked_at(tx, parent, home, turn)
    inherited = settings_json(asked) if asked else ""
    place = place_name("" if parent.run.settings.private else alias)
    child = rows.ForkedRun(scope, alias, number, ended, first, tx.now_ms, inherited, caller.name, place)
    child_id = rows.add_child(tx.connection, parent.id, child)
    rows.copy_views(tx.connection, source, child_id, first, revision)
    row = get_run(tx.connection, address.project, alias)
    # The copies of open entries are cancelled, which says that they did not happen.
    found = [
        find_entry(tx.connection, row, path, bodies=False)
        for path in rows.open_records(tx.connection, source, revision)
    ]
    begun = [entry for entry in found if entry and may_have_happened(entry.record)]
    if begun:
        tx.next_moment()
        writes = [EntryWrite(one.path, _UNDER_WAY, Tier.SYSTEM, turn=one.turn, loop=one.loop) for one in begun]
        row = apply_writes(tx, rules, row, writes, caller.name, is_unbounded=True).run
    return row.run


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

"""Forks: a new run that starts with another one's view; it costs a copy of the view's rows.

Source: architecture 3 (forks); rows RU060, RU064, RU219; C18.
"""

from __future__ import annotations

from turnwright_core.runs import Run
from turnwright_store.app.history import get_turn_home
from turnwright_store.app.inheritance import asked_at
from turnwright_store.app.registry import check_alias_free, generate_alias
from turnwright_store.domain.checks import RUN_ALIAS, check_name
from turnwright_store.domain.names import RunRef
from turnwright_store.ports import Transaction
from turnwright_store.sql import forks as rows
from turnwright_store.sql.loops import settings_json
from turnwright_store.sql.registry import get_project
from turnwright_store.sql.runs import get_run
from turnwright_store.sql.scopes import add_scope, bump_scope


def fork_run(tx: Transaction, address: RunRef, alias: str, turn: int) -> Run:
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
    child = rows.ForkedRun(scope, alias, number, ended, first, tx.now_ms, settings_json(asked) if asked else "")
    child_id = rows.add_child(tx.connection, parent.id, child)
    rows.copy_views(tx.connection, source, child_id, first, revision)
    return get_run(tx.connection, address.project, alias).run

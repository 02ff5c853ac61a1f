"""Forks: a new run that starts with another one's view; it costs a copy of the view's rows.

Source: architecture 3 (forks); rows RU060, RU064, RU219; C18.
"""

from __future__ import annotations

from msgspec import Struct

from turnwright_core.runs import Run
from turnwright_store.app.history import get_turn_home
from turnwright_store.app.registry import check_alias_free, generate_alias
from turnwright_store.domain.checks import RUN_ALIAS, check_name
from turnwright_store.domain.names import RunRef
from turnwright_store.ports import Connection, Transaction
from turnwright_store.sql import forks as rows
from turnwright_store.sql.registry import get_project
from turnwright_store.sql.runs import RunRow, get_run
from turnwright_store.sql.scopes import add_scope, bump_scope


class _Moment(Struct, frozen=True):
    """The moment at which a fork begins."""

    source: int
    """Id of the run whose views are copied."""
    revision: int
    """Revision of its scope."""
    turn: int
    """The number after which the fork's turns continue."""
    origin_turn: int
    """The ended turn that the fork follows; 0: none has ended."""


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
    moment = _moment(tx.connection, parent, turn)
    scope = add_scope(tx, f"run:{owner.id}:{alias}")
    first, _ = bump_scope(tx, scope, rows.positions_of(tx.connection, parent.id))
    child = rows.ForkedRun(scope, alias, moment.turn, moment.origin_turn, first, tx.now_ms)
    child_id = rows.add_child(tx.connection, parent.id, child)
    rows.copy_views(tx.connection, moment.source, child_id, first, moment.revision)
    return get_run(tx.connection, address.project, alias).run


def _moment(connection: Connection, parent: RunRow, turn: int) -> _Moment:
    if not turn:
        # The number of an open turn is taken: its records are in the view.
        return _Moment(parent.id, parent.revision_run, parent.run.turn, rows.latest_ended(connection, parent.id))
    home = get_turn_home(connection, parent, turn)
    return _Moment(home.run_id, home.revision, turn, turn)

"""Rows of a run that is imported: nobody sees them until it is whole.

Until then the run counts as one that is removed at a time to come, which each write puts off; if none follows, what was
written goes as the rows of any removed run do. A staged document stays such a run.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import asdict
from sqlalchemy import Connection, bindparam, select, update
from turnwright_values.store import TitleCall
from turnwright_values.types import Loop, Run, RunSettings, Turn

from turnwright_core.runs import QUEUED, RUNNING
from turnwright_store.ports import Transaction
from turnwright_store.sql import entries as rows
from turnwright_store.sql.clauses import insertion, number
from turnwright_store.sql.control import add_name_change
from turnwright_store.sql.loops import add_loop, write_loop
from turnwright_store.sql.registry import ProjectRow
from turnwright_store.sql.runs import setting_values, title_call_json
from turnwright_store.sql.scopes import add_scope, bump_scope
from turnwright_store.sql.tables import runs, scopes, turns

KEPT_MS: Final = 60_000
"""How long what is imported stays without another write."""

STAGED_MS: Final = 3_600_000
"""How long a staged document stays."""

STAGED_MAX: Final = 4
"""Most documents that a caller has staged in a project: the eldest go."""

_ADD: Final = runs.insert().returning(runs.c.id)
_KEEP: Final = (
    update(runs)
    .where(runs.c.id == bindparam("run"), runs.c.removed_ms > number("now_ms"))
    .values(removed_ms=bindparam("later_ms"))
    .returning(runs.c.id)
)
_TURNS: Final = insertion(turns)
_SHOW: Final = update(runs).where(runs.c.id == bindparam("run"))
_STAGED: Final = select(runs.c.id).where(
    runs.c.project_id == bindparam("project"), runs.c.removed_ms > number("now_ms")
)
_STAGED_AS: Final = _STAGED.where(runs.c.alias == bindparam("alias"))
_STAGED_BY: Final = _STAGED.where(runs.c.alias >= bindparam("low"), runs.c.alias < bindparam("high")).order_by(
    runs.c.removed_ms.desc(), runs.c.id.desc()
)
_REMOVE: Final = update(runs).where(runs.c.id.in_(bindparam("ids", expanding=True)))
_PLACE: Final = update(scopes).where(scopes.c.id == bindparam("scope"))


class HiddenRun(Struct, frozen=True):
    """A run that is being imported."""

    id: int
    scope: int
    alias: str
    """That it has until it is whole; no caller can name it."""


def add_hidden_run(tx: Transaction, owner: ProjectRow, by: str) -> HiddenRun:
    alias = f"~import-{secrets.token_hex(8)}"
    scope = add_scope(tx, f"run:{owner.id}:{alias}")
    run = Run(owner.project.name, alias, RunSettings(""), QUEUED)
    values = {
        "project_id": owner.id,
        "scope_id": scope,
        "alias": alias,
        "by": by,
        "status": run.status,
        "create_ms": tx.now_ms,
        "update_ms": tx.now_ms,
        "removed_ms": tx.now_ms + KEPT_MS,
        **setting_values(run.settings),
    }
    return HiddenRun(int(tx.connection.execute(_ADD, values).scalar_one()), scope, alias)


def keep_hidden_run(tx: Transaction, run: HiddenRun) -> bool:
    """Put off the removal of what was imported; False if its time has passed."""
    values = {"run": run.id, "now_ms": tx.now_ms, "later_ms": tx.now_ms + KEPT_MS}
    return tx.connection.execute(_KEEP, values).one_or_none() is not None


def add_entry_rows(
    tx: Transaction, entries: Sequence[Mapping[str, Any]], versions: Sequence[Any], views: Sequence[Any]
) -> None:
    for statement, values in ((rows.ENTRIES, entries), (rows.VERSIONS, versions), (rows.VIEWS, views)):
        if values:
            tx.connection.execute(statement, list(values))


def add_ended_turn(tx: Transaction, run: HiddenRun, turn: Turn) -> None:
    """A turn that has ended. Its own revision is 0 if another run has had it: it is no moment of this one."""
    values = {
        "run_id": run.id,
        "number": turn.number,
        "loop": turn.loop,
        "request": encode(turn.request).decode(),
        "result": encode(turn.result).decode(),
        "begin_ms": turn.begin_ms,
        "end_ms": turn.end_ms,
        "revision": turn.revision,
    }
    tx.connection.execute(_TURNS, values)


def add_ended_loop(connection: Connection, run: HiddenRun, loop: Loop) -> None:
    """Nobody here asked for it."""
    add_loop(connection, run.id, loop, "")
    write_loop(connection, run.id, loop)


def show_run(tx: Transaction, owner: ProjectRow, hidden: HiddenRun, run: Run, loops: int, positions: int) -> None:
    """Have everybody see what was imported, as a run at rest: its row is what the run says."""
    key = f"run:{owner.id}:{run.run}"
    # The moment of this transaction is the revision of the document.
    tx.connection.execute(
        _PLACE, {"scope": hidden.scope, "key": key, "revision": run.revision - 1, "positions": positions}
    )
    bump_scope(tx, hidden.scope)
    if run.status != QUEUED:
        # From there a run may go to each status in which it rests.
        tx.connection.execute(_SHOW, {"run": hidden.id, "status": RUNNING})
    # One that has its title: no model is asked for another one.
    titled = {"title_call": title_call_json(TitleCall(title=run.title))} if run.title else {}
    shown = asdict(run)
    values = {name: shown[name] for name in ("status", "turn", "summary", "revision", "create_ms")}
    tx.connection.execute(
        _SHOW,
        {
            "run": hidden.id,
            **values,
            **setting_values(run.settings),
            **titled,
            "alias": run.run,
            "place_name": run.place.name if run.place else "",
            "loops": loops,
            "update_ms": tx.now_ms,
            "removed_ms": 0,
        },
    )
    add_name_change(tx, owner.id, run.run)


# ---- Staged documents


def _alias(principal: str, staged_id: str) -> str:
    return f"~staged-{hashlib.blake2b(principal.encode(), digest_size=16).hexdigest()}-{staged_id}"


def stage_run(tx: Transaction, owner: ProjectRow, hidden: HiddenRun, principal: str) -> tuple[str, int]:
    """Keep what was imported; returns what its caller names it by, and when it goes, in milliseconds since 1970."""
    staged_id, expire_ms = secrets.token_hex(16), tx.now_ms + STAGED_MS
    alias = _alias(principal, staged_id)
    tx.connection.execute(_SHOW, {"run": hidden.id, "alias": alias, "removed_ms": expire_ms})
    prefix = _alias(principal, "")
    # What follows the hyphen in ASCII.
    values = {"project": owner.id, "now_ms": tx.now_ms, "low": prefix, "high": f"{prefix[:-1]}."}
    if older := tx.connection.execute(_STAGED_BY, values).scalars().all()[STAGED_MAX:]:
        tx.connection.execute(_REMOVE, {"ids": older, "removed_ms": tx.now_ms})
    return staged_id, expire_ms


def find_staged(tx: Transaction, project_id: int, principal: str, staged_id: str) -> int | None:
    """Id of the run that a document of this caller is kept as; None if there is none any more."""
    values = {"project": project_id, "now_ms": tx.now_ms, "alias": _alias(principal, staged_id)}
    found: int | None = tx.connection.execute(_STAGED_AS, values).scalar_one_or_none()
    return found

"""What a loop inherits where nothing is said: what was asked of the latest loop of a user.

Never what its run gave that loop, never a grant (`yolo`), nor a demand on a client that may be gone (`client_tools`),
nor edits of prompts, which name messages that may be gone; and not its model, if the run's was set later. Source:
decision C62; rows OM28, OM32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright_values.types import Loop, LoopSettings, Mode

from turnwright_store.domain.settings_patch import queued_settings
from turnwright_store.ports import Transaction
from turnwright_store.sql import loops as loop_rows
from turnwright_store.sql.forks import TurnHome
from turnwright_store.sql.runs import RunRow, load_runs

_LOOPS_PAGE = 20
"""Loops to read at a time, to find the latest one of a user."""


def asked_of(run: RunRow, loop: Loop) -> LoopSettings:
    """What was asked of a loop, as far as it can be asked of another one."""
    model = loop.settings.model if loop.sequence > run.model_loop else ""
    settings = replace(loop.settings, model=model, yolo=False, client_tools=(), edits=())
    return queued_settings(settings, model_of_run=True)


def latest_asked(tx: Transaction, run: RunRow) -> LoopSettings:
    """What was asked of the latest loop of a user, its budget included, without what holds for one prompt."""
    loop = latest_of_user(tx.connection, run)
    if loop is None and run.asked:
        return replace(run.asked, model="" if run.model_loop else run.asked.model)
    return _without_prompt(asked_of(run, loop)) if loop else LoopSettings(Mode.ACT)


def latest_of_user(connection: Connection, run: RunRow) -> Loop | None:
    """The latest loop whose prompt a user wrote, queued ones included."""
    shown = run.run.loop
    if not run.loops:
        return None
    if shown and shown.sequence == run.loops and not shown.settings.synthetic:
        return shown
    return _latest(connection, run, lambda loop: not loop.settings.synthetic)


def asked_at(tx: Transaction, parent: RunRow, home: TurnHome | None, turn: int) -> LoopSettings | None:
    """What a fork inherits that begins at the end of this turn, which is stored in `home`; None there: at the head."""
    if home is None:
        return latest_asked(tx, parent) if parent.loops else None
    run = parent if home.run_id == parent.id else next(iter(load_runs(tx.connection, [home.run_id])), parent)
    loop = _latest(tx.connection, run, lambda one: not one.settings.synthetic and 0 < one.first_turn <= turn)
    if loop is None:
        return run.asked
    asked = _without_prompt(asked_of(run, loop))
    # What the parent's model was set to goes for whatever it has inherited itself.
    return replace(asked, model="") if run is not parent and parent.model_loop else asked


def _without_prompt(settings: LoopSettings) -> LoopSettings:
    return replace(settings, response_format=None, images=())


def _latest(connection: Connection, run: RunRow, is_wanted: Callable[[Loop], bool]) -> Loop | None:
    return next(filter(is_wanted, _backwards(connection, run)), None)


def _backwards(connection: Connection, run: RunRow) -> Iterator[Loop]:
    """The loops of a run, latest first."""
    before = run.loops + 1
    while page := list(loop_rows.list_loops(connection, run.id, before, _LOOPS_PAGE)):
        yield from page
        before = page[-1].sequence

"""The queue of a run: what waits in it, in order, and taking something out. Source: rows RC11, RC12; decision C48."""

from __future__ import annotations

from turnwright_core.checks import invalid
from turnwright_core.errors import Reason, fault
from turnwright_core.kit.auth import Caller
from turnwright_core.runs import Run
from turnwright_core.session_queue import QUEUE_LISTED_MAX, QueuedCommand, merge_queue, queued_loop
from turnwright_store.app.registry import with_origin
from turnwright_store.app.waiting_edits import (
    WaitingEdit,
    apply_waiting_edits,
    cancel_loop,
    drop_waiting,
    waiting_edits,
)
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Connection, Transaction
from turnwright_store.sql import loops as loop_rows
from turnwright_store.sql.runs import RunRow, get_run


def list_commands(connection: Connection, address: RunRef) -> list[QueuedCommand]:
    """What waits, the next one first."""
    run = get_run(connection, address.project, address.run)
    loops = loop_rows.list_queued(connection, run.id, QUEUE_LISTED_MAX)
    queued = {loop.sequence: queued_loop(loop) for loop in loops}
    return merge_queue(queued, [one.queued for one in waiting_edits(connection, run)])


def cancel_command(
    tx: Transaction, rules: StoreRules, caller: Caller, address: RunRef, command_id: str, loop: int
) -> Run:
    """Take a command out of the queue, by its id or by its loop. Raises ENTRY_NOT_FOUND where it does not wait."""
    if not (command_id or loop):
        raise invalid("command_id", "Say which command: its command_id, or its loop.")
    run = get_run(tx.connection, address.project, address.run)
    edits = waiting_edits(tx.connection, run)
    edit = next((one for one in edits if _is(one, command_id, loop, caller)), None)
    if edit:
        loop = edit.queued.loop
        drop_waiting(tx, rules, run, edit)
        run = get_run(tx.connection, address.project, address.run)
    cancelled = cancel_loop(tx, run, loop, command_id) if loop else None
    if not (edit or cancelled):
        message = f"No command {command_id or loop!r} waits in {address.run}: it may have begun."
        raise fault(Reason.ENTRY_NOT_FOUND, message, path=command_id or str(loop))
    _go_on(tx, rules, get_run(tx.connection, address.project, address.run))
    return with_origin(tx.connection, get_run(tx.connection, address.project, address.run))


def _is(edit: WaitingEdit, command_id: str, loop: int, caller: Caller) -> bool:
    if command_id:
        return edit.queued.command_id == command_id and edit.queued.principal == caller.principal
    return bool(loop) and edit.queued.loop == loop


def _go_on(tx: Transaction, rules: StoreRules, run: RunRow) -> None:
    """Carry out the edits that wait for nothing any more."""
    if run.loop_active:
        return
    queued = next(iter(loop_rows.list_queued(tx.connection, run.id, 1)), None)
    apply_waiting_edits(tx, rules, run, queued.sequence - 1 if queued else run.loops)

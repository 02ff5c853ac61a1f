"""The queue of a run: loops, and edits of messages, which are stored as entries of the run.

An edit has a place between the loops of the queue. It is carried out in the transaction that ends the loop before it,
so that no other work comes between. If it has become impossible, because its message is gone, an event says so, and the
loop that it brought is cancelled. Source: rows RS07, RS08, RC11, RC12; decision C48.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct, json
from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright_values.store import EntryWrite, RemoveEntry, SetEntry
from turnwright_values.types import Entry, Loop, QueuedCommand, Run, State, Tier, Visibility

from turnwright_core.checks import invalid
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.events import RunEvent, Subkind
from turnwright_core.runs import ABORTED, QUEUED
from turnwright_core.session import EDIT_SCHEME, QUEUE_LISTED_MAX, QueuedEdit, merge_queue, queued_loop
from turnwright_core.value_methods import to_attributes_json
from turnwright_kit.identity.caller import Caller
from turnwright_store.app import message_edits
from turnwright_store.app.apply_writes import apply_writes
from turnwright_store.app.edit_plans import Edit, apply_edit
from turnwright_store.app.registry import with_origin
from turnwright_store.app.run_events import write_event
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Transaction
from turnwright_store.sql import loops as loop_rows
from turnwright_store.sql.contents import load_entries
from turnwright_store.sql.runs import RunHead, RunRow, bump_revision, get_run, write_run
from turnwright_store.sql.views import Wanted, all_entry_rows

PREFIX: Final = f"{EDIT_SCHEME}://"

CANCELLED: Final = "cancelled"
"""Reason of a loop that was taken out of the queue."""


class WaitingEdit(Struct, frozen=True):
    """An edit in the queue."""

    path: str
    edit: Edit
    queued: QueuedEdit


def add_waiting(
    tx: Transaction, rules: StoreRules, run: RunRow, edit: Edit, origin: tuple[str, str, str, str], *, brings_loop: bool
) -> None:
    """Queue an edit behind all loops of a run; `origin` is kind, preview, command id and principal."""
    kind, preview, command_id, principal = origin
    queued_edit = QueuedEdit(run.loops, kind, preview, command_id, principal, run.loops + 1 if brings_loop else 0)
    attributes = to_attributes_json(json.decode(json.encode(queued_edit)))
    change = SetEntry(json.encode(edit).decode(), attributes, Visibility.ARCHIVED, state=State.RECORDED)
    path = f"{PREFIX}{run.loops}/{run.revision_run + 1}"
    apply_writes(tx, rules, run, [EntryWrite(path, change, Tier.SYSTEM)], principal)


def waiting_edits(connection: Connection, run: RunHead, until: int | None = None) -> list[WaitingEdit]:
    """The edits that wait, in their order; `until`: only those that wait for no later loop."""
    shown = [one for one in all_entry_rows(connection, run.id, PREFIX) if one.state == State.RECORDED]
    entries = load_entries(connection, run, sorted(shown, key=lambda one: one.position), Wanted())
    found = map(_waiting_edit, entries)
    return [one for one in found if until is None or one.queued.after_loop <= until]


_QUEUED: Final = json.Decoder(QueuedEdit)
_EDIT: Final = json.Decoder(Edit)


def _waiting_edit(entry: Entry) -> WaitingEdit:
    return WaitingEdit(entry.path, _EDIT.decode(entry.body), _QUEUED.decode(entry.attributes_json))


def count_waiting(connection: Connection, run: RunHead) -> int:
    """How many edits wait that bring no loop."""
    return sum(not one.queued.loop for one in waiting_edits(connection, run))


def apply_waiting_edits(tx: Transaction, rules: StoreRules, run: RunRow, ended: int) -> RunRow | None:
    """Carry out the edits that waited for a loop that has ended; the run after that, None where none did."""
    waiting = waiting_edits(tx.connection, run, ended)
    for one in waiting:
        # A rewind to the end of the turn before must not show what follows.
        tx.next_moment()
        run = get_run(tx.connection, run.project, run.alias)
        try:
            apply_edit(tx, rules, run, one.queued.principal, one.edit)
        except TurnwrightError as error:
            queued = one.queued
            sentence = f"A queued command ({queued.kind}) could not be carried out: {error.message}"
            payload = {"command": queued.kind, "command_id": queued.command_id, "reason": error.reason.name}
            event = RunEvent(Subkind.SYSTEM_NOTICE, message_edits.SOURCE, payload, sentence, "command")
            write_event(tx, rules, run, queued.principal, event)
            cancel_loop(tx, get_run(tx.connection, run.project, run.alias), queued.loop)
        run = get_run(tx.connection, run.project, run.alias)
        drop_waiting(tx, rules, run, one)
    return get_run(tx.connection, run.project, run.alias) if waiting else None


def drop_waiting(tx: Transaction, rules: StoreRules, run: RunRow, one: WaitingEdit) -> None:
    """Take an edit out of the queue."""
    writes = [EntryWrite(one.path, RemoveEntry(), Tier.SYSTEM)]
    apply_writes(tx, rules, run, writes, one.queued.principal, is_unbounded=True)


def cancel_loop(tx: Transaction, run: RunRow, sequence: int, command_id: str = "") -> Loop | None:
    """Take a loop out of the queue; None where it does not wait, or is not that of the command."""
    loop = loop_rows.find_loop(tx.connection, run.id, sequence)
    if loop is None or loop.status != QUEUED:
        return None
    if command_id and loop.command_id != command_id:
        return None
    run = bump_revision(tx, run)
    loop = replace(loop, status=ABORTED, reason=CANCELLED, end_ms=tx.now_ms, revision=run.revision_run)
    loop_rows.write_loop(tx.connection, run.id, loop)
    shown = loop if run.run.loop and run.run.loop.sequence == sequence else run.run.loop
    cancelled = replace(run.run, loop=shown, loops_queued=run.run.loops_queued - 1)
    write_run(tx, replace(run, run=cancelled))
    return loop


# ---- The queue of a run: loops and edits


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
        return edit.queued.command_id == command_id and edit.queued.principal == caller.name
    return bool(loop) and edit.queued.loop == loop


def _go_on(tx: Transaction, rules: StoreRules, run: RunRow) -> None:
    """Carry out the edits that wait for nothing any more."""
    if run.loop_active:
        return
    queued = loop_rows.next_queued(tx.connection, run.id)
    apply_waiting_edits(tx, rules, run, queued[0].sequence - 1 if queued else run.loops)

"""Edits of messages: updating or removing one, rewinding a run to before one or to the end of a turn, or replacing all.

Only views change: earlier versions can still be read (ListEntryHistory), and `rewind_to_turn` shows them again.
Project files and other shared entries are not rewound; an event says so, because the model would assume that they are.
Source: architecture 4; rows RC03-RC05, RC08, OM14; decisions C40, C49.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct
from sqlalchemy import Connection
from turnwright.types.v1.command_record_pb2 import CommandRecord
from turnwright_values.store import EntryWrite, RemoveEntry, SetEntry
from turnwright_values.types import Entry, MessageKind, Tier

from turnwright_core.chat.timeline import CALLS, COMMANDS, PROSE, is_synthetic, kind_of, turn_of
from turnwright_core.checks import check_bytes, invalid
from turnwright_core.errors import Reason, fault
from turnwright_core.events import REWIND_SLUG, RunEvent, Subkind
from turnwright_core.limits import PROMPT_BYTES_MAX
from turnwright_core.value_methods import to_attributes_json
from turnwright_store.app.apply_writes import apply_writes
from turnwright_store.app.history import get_turn_home
from turnwright_store.app.restore_trajectory import restore_trajectory
from turnwright_store.app.run_events import write_event
from turnwright_store.domain.names import records_prefix
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Transaction
from turnwright_store.sql import messages as rows
from turnwright_store.sql.contents import find_entry, load_entries
from turnwright_store.sql.forks import find_turn_home
from turnwright_store.sql.rewind import RewindTarget, rewind_views
from turnwright_store.sql.runs import RunRow, bump_revision
from turnwright_store.sql.views import Wanted, all_entry_rows, find_entry_row

UNSIGNED: Final = ("thinking", "server_blocks", PROSE, COMMANDS)
"""Attributes of a reply that are signed by its vendor or refer to offsets in its text."""

SOURCE: Final = "session"
"""Of events."""


_FILES_KEPT: Final = "Files of the project were not changed back."


class RewindResult(Struct, frozen=True):
    """The number of entries that a rewind has hidden or changed, and of those that are visible again."""

    closed: int = 0
    opened: int = 0


def find_message(tx: Transaction, run: RunRow, path: str) -> Entry:
    """A message of a run, without its body. Raises ENTRY_NOT_FOUND."""
    entry = find_entry(tx.connection, run, path, bodies=False)
    if entry is None or kind_of(entry) is None:
        message = f"{run.run.run} has no message {path!r}: list its messages again."
        raise fault(Reason.ENTRY_NOT_FOUND, message, path=path)
    return entry


def message_at(connection: Connection, run: RunRow, index: int, expected_revision: int) -> Entry | None:
    """The message at an index of a list read at a revision; None after its end.

    Raises REVISION_CONFLICT if the list up to there has changed.
    """
    if index < 0:
        raise invalid("from_index", f"from_index must be 0 or more; it is {index}.")
    if expected_revision > run.revision_run:
        raise _messages_changed(run, expected_revision, run.revision_run)
    found = next(islice(_messages(connection, run), index, None), None)
    changed = rows.last_change(connection, run.id, found.position if found else None)
    if changed > expected_revision:
        raise _messages_changed(run, expected_revision, changed)
    return found


def _messages(connection: Connection, run: RunRow, position: int = 0) -> Iterator[Entry]:
    for page in rows.pages_by_position(connection, run.id, position):
        yield from filter(kind_of, load_entries(connection, run, page, Wanted(bodies=False)))


def _messages_changed(run: RunRow, expected: int, actual: int) -> Exception:
    message = f"The messages of {run.run.run} have changed since revision {expected}: list them again, then repeat."
    return fault(Reason.REVISION_CONFLICT, message, path="", expected=expected, actual=actual)


def check_content(content: str) -> None:
    """Refuse empty and too long content."""
    check_bytes("content", content, PROMPT_BYTES_MAX)
    if not content.strip():
        raise invalid("content", "The content is empty: remove the message instead.")


def find_editable(tx: Transaction, run: RunRow, path: str) -> Entry:
    """A message that can be edited. Raises ENTRY_NOT_FOUND, INVALID_FIELD."""
    entry = find_message(tx, run, path)
    if kind_of(entry) in (MessageKind.EVENT, MessageKind.PLAN):
        raise invalid("message_id", f"{entry.path} says what happened: events and plans cannot be edited.")
    return entry


def prompt_before(connection: Connection, run: RunRow, position: int = rows.LAST) -> Entry | None:
    """The latest prompt of a user before a position (OM32)."""
    while shown := rows.latest_prompt(connection, run.id, position):
        entry = load_entries(connection, run, [shown], Wanted(bodies=False))[0]
        if not is_synthetic(entry):
            return entry
        position = entry.position
    return None


def next_message(connection: Connection, run: RunRow, position: int) -> Entry | None:
    """The first message after a position."""
    return next(_messages(connection, run, position), None)


def update_message(tx: Transaction, rules: StoreRules, run: RunRow, actor: str, path: str, content: str) -> None:
    """Replace the content of a message. Raises ENTRY_NOT_FOUND, INVALID_FIELD, LIMIT_EXCEEDED."""
    entry = find_editable(tx, run, path)
    change = SetEntry(content, _without_signatures(entry) if entry.scheme == "assistant" else None)
    _write(tx, rules, run, actor, [EntryWrite(path, change, Tier.SYSTEM, turn=entry.turn, loop=entry.loop)])


def _without_signatures(entry: Entry) -> str:
    """The attributes of a reply without signatures of its earlier text."""
    attributes = {name: value for name, value in entry.attributes.items() if name not in UNSIGNED}
    if CALLS in attributes:
        attributes[CALLS] = [{k: v for k, v in call.items() if k != "signature"} for call in attributes[CALLS]]
    return to_attributes_json(attributes)


def remove_message(tx: Transaction, rules: StoreRules, run: RunRow, actor: str, path: str) -> int:
    """Remove a message, and with a reply the results of its calls; returns the number of removed entries.

    Raises ENTRY_NOT_FOUND, INVALID_FIELD.
    """
    entry = find_editable(tx, run, path)
    paths = [path]
    if entry.scheme == "assistant":
        turn = turn_of(entry)
        reasoning = f"reasoning://{turn}"
        paths += [reasoning] if find_entry_row(tx.connection, run.id, reasoning) else []
        paths += _results(tx.connection, run, turn)
    _write(tx, rules, run, actor, [EntryWrite(one, RemoveEntry(), Tier.SYSTEM) for one in paths])
    return len(paths)


def _results(connection: Connection, run: RunRow, turn: int) -> list[str]:
    """The results of the commands of a turn's reply, and the errors of calls that became no command."""
    shown = all_entry_rows(connection, run.id, records_prefix(turn))
    found = load_entries(connection, run, shown, Wanted(bodies=False))
    return [entry.path for entry in found if _is_of_reply(entry)]


def _is_of_reply(entry: Entry) -> bool:
    if entry.record:
        return CommandRecord.FromString(entry.record).HasField("ordinal")
    return bool(entry.writer is Tier.SYSTEM and entry.attributes.get("call_id"))


def rewind_before_message(tx: Transaction, rules: StoreRules, run: RunRow, actor: str, message: Entry) -> RewindResult:
    """Rewind a run to before the turn of a message."""
    turn = turn_of(message)
    home = find_turn_home(tx.connection, run.id, turn - 1) if turn > 1 else None
    moment = RewindTarget(home.run_id, home.revision) if home else RewindTarget(run.id, 0)
    summary = f"The conversation was taken back to before {message.path}."
    return _rewind(tx, rules, run, actor, moment, message.position, {"before": message.path}, summary)


def rewind_to_turn(tx: Transaction, rules: StoreRules, run: RunRow, actor: str, turn: int) -> RewindResult:
    """Restore the view at the end of a turn, even of one after the current view. Raises TURN_NOT_FOUND."""
    home = get_turn_home(tx.connection, run, turn)
    summary = f"The conversation was set to what it was at the end of turn {turn}."
    return _rewind(tx, rules, run, actor, RewindTarget(home.run_id, home.revision), 0, {"turn": turn}, summary)


def restore_document(tx: Transaction, rules: StoreRules, run: RunRow, actor: str, staged_id: str) -> RewindResult:
    """Show the messages of a staged document in the place of those of a run. Raises ENTRY_NOT_FOUND."""
    before = run.turn
    run, closed, opened = restore_trajectory(tx, rules, run, actor, staged_id)
    whole = f"The conversation was replaced by that of a document. {_FILES_KEPT}"
    details = {"document": staged_id, "turn_before": before, "files_kept": True}
    write_event(tx, rules, run, actor, RunEvent(Subkind.SYSTEM_NOTICE, SOURCE, details, whole, REWIND_SLUG))
    return RewindResult(closed, opened)


def _rewind(
    tx: Transaction,
    rules: StoreRules,
    run: RunRow,
    actor: str,
    moment: RewindTarget,
    position: int,
    details: dict[str, object],
    sentence: str,
) -> RewindResult:
    run = bump_revision(tx, run)
    closed, opened = rewind_views(tx.connection, run, moment, position, run.revision_run)
    if closed or opened:
        whole = f"{sentence} {_FILES_KEPT}"
        event = RunEvent(Subkind.SYSTEM_NOTICE, SOURCE, {**details, "files_kept": True}, whole, REWIND_SLUG)
        write_event(tx, rules, run, actor, event)
    return RewindResult(closed, opened)


def _write(tx: Transaction, rules: StoreRules, run: RunRow, actor: str, writes: Sequence[EntryWrite]) -> None:
    # What ends a loop must not fail because the run is full.
    apply_writes(tx, rules, run, writes, actor, is_unbounded=True)

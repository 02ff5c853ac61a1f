"""RestoreFromTrajectory: what a staged document has seen, in the place of what a run sees of its own.

The turns of the document come behind those of the run and get the next numbers, so that RewindToTurn still finds every
earlier one. What says of which turn it is gets the same number: paths, ids of calls, and attributes that name them;
images get names of their own, because the run keeps its own.
Texts stay as they were written. The turns belong to no loop of the run, and so count as none of its spend.
Source: row RC08.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright.types.v1.command_record_pb2 import CommandRecord
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Entry, TurnResult

from turnwright_core.chat.timeline import CALLS, COMMANDS, IMAGES, SUMMARIZES, named_turn
from turnwright_core.checks import invalid, over_limit
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import WRITES_MAX
from turnwright_core.schemes import OF_SESSIONS, SHARED
from turnwright_store.app.apply_writes import apply_writes
from turnwright_store.app.document_elements import NUMBER_MAX
from turnwright_store.domain.limits import WriteLimits
from turnwright_store.domain.path_state import attributes_text
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.domain.write_rules import check_attributes, check_path, check_record
from turnwright_store.ports import Transaction
from turnwright_store.sql import turns as turn_rows
from turnwright_store.sql.contents import load_entries
from turnwright_store.sql.imported_runs import find_staged
from turnwright_store.sql.rewind import RewindTarget, rewind_views
from turnwright_store.sql.runs import RunRow, bump_revision, write_run
from turnwright_store.sql.views import Wanted, all_entry_rows

TURNS_MAX: Final = 10**6
"""Highest number of a turn that a document brings: those that follow must stay far below what paths have room for."""

_LEFT_OUT: Final = (*SHARED, *OF_SESSIONS, "run", "system", "user")
"""Schemes of what is no part of a conversation: files, what waits to be sent, settings, and copies of packets."""

_NAMING: Final = (CALLS, COMMANDS, SUMMARIZES, IMAGES, "call_id", "event")
"""Attributes whose texts may be paths or ids of calls."""

_IMAGE: Final = "image://"

_VENDORS: Final = "id"
"""Name of the id that a vendor has given a call."""

_OF_TURN: Final = re.compile(
    r"(?:(?:prompt|assistant|reasoning)://|[a-z]+://turn_|call_(?=[0-9]+_[0-9]+\Z))([0-9]{1,9})(?![0-9])"
)


def get_staged(tx: Transaction, run: RunRow, principal: str, staged_id: str) -> int:
    """Id of the run that the document is kept as. Raises ENTRY_NOT_FOUND."""
    found = find_staged(tx, run.project_id, principal, staged_id)
    if found is None:
        message = (
            f"There is no staged document {staged_id!r}: it has expired, or somebody else staged it. Import it again."
        )
        raise fault(Reason.ENTRY_NOT_FOUND, message, path=staged_id)
    return found


def restore_trajectory(
    tx: Transaction, rules: StoreRules, run: RunRow, actor: str, staged_id: str
) -> tuple[RunRow, int, int]:
    """Returns the run, and how many entries are not seen any more and how many came.

    Raises ENTRY_NOT_FOUND, INVALID_FIELD, LIMIT_EXCEEDED before anything is changed: a command that was queued is given
    up without a rollback.
    """
    staged = get_staged(tx, run, actor, staged_id)
    shown = [one for one in all_entry_rows(tx.connection, staged, "") if one.scheme not in _LEFT_OUT]
    entries = load_entries(tx.connection, run, sorted(shown, key=lambda one: one.position), Wanted())
    turns = list(turn_rows.list_turns(tx.connection, staged, NUMBER_MAX + 1, WRITES_MAX))
    before = run.turn
    named = (max(entry.turn, named_turn(entry.path) or 0) for entry in entries)
    latest = before + max([*named, *(turn.number for turn in turns)], default=0)
    if latest > TURNS_MAX:
        raise over_limit("staged_id", TURNS_MAX, latest, "turns, with those of the run")
    moving = _Moving(staged_id, before)
    writes = [moving.write(entry) for entry in entries]
    _check(rules.limits, run, writes)
    run = bump_revision(tx, run)
    closed, _ = rewind_views(tx.connection, run, RewindTarget(run.id, 0), 0, run.revision_run)
    for turn in turns:
        number = before + turn.number
        turn_rows.add_turn(tx.connection, run.id, replace(turn, number=number, loop=0, revision=run.revision_run))
        # No packet of this run has these digests.
        result = replace(turn.result or TurnResult(), packet_digest="", fingerprint="")
        end = run.cursor(rules.incarnation)
        turn_rows.end_turn(tx.connection, run.id, number, result, turn.end_ms, end, is_read_back=False)
    run = write_run(tx, replace(run, turn=latest, run=replace(run.run, turn=latest)))
    return apply_writes(tx, rules, run, writes, actor).run, closed, len(writes)


def _check(limits: WriteLimits, run: RunRow, writes: list[EntryWrite]) -> None:
    """Refuse what could not be written: names get longer where they are moved, and each entry takes a new place."""
    if len({write.path for write in writes}) < len(writes):
        raise invalid("staged_id", "The document has two entries whose paths name the same turn in different ways.")
    for write in writes:
        check_path(write.path, limits.path_chars_max)
        if isinstance(write.change, SetEntry):
            check_attributes(write.change.attributes_json or "", limits.attributes_bytes_max)
            check_record(write.change.record or b"", limits.attributes_bytes_max)
    if (places := run.positions + len(writes)) > limits.run_entries_max:
        raise over_limit("run_entries", limits.run_entries_max, places, "entries")


class _Moving(Struct, frozen=True):
    """How the names in a document change where a run takes it over."""

    staged_id: str
    turns: int
    """By how much the numbers of turns are higher."""

    def write(self, entry: Entry) -> EntryWrite:
        attributes = {
            name: self._moved(value) if name in _NAMING else value
            for name, value in entry.attributes.items()
            # Of a loop of the document.
            if name != "loop"
        }
        change = SetEntry(
            entry.body,
            attributes_text(attributes),
            visibility=entry.visibility,
            state=entry.state,
            outcome=entry.outcome or None,
            record=self._record(entry.record),
        )
        return EntryWrite(self._moved(entry.path), change, entry.writer, turn=entry.turn + self.turns, loop=0)

    def _record(self, record: bytes) -> bytes:
        if not record:
            return b""
        moved = CommandRecord.FromString(record)
        moved.call_id = self._moved(moved.call_id)
        return moved.SerializeToString()

    def _moved(self, value: Any) -> Any:
        """A value with other paths and ids of calls."""
        if isinstance(value, str):
            if value.startswith(_IMAGE):
                # Its name says of which loop it was, and the run has kept its own images.
                key = hashlib.blake2b(
                    f"{self.staged_id} {value}".encode(errors="surrogatepass"), digest_size=16
                ).hexdigest()
                return f"{_IMAGE}restored_{key}"
            found = _OF_TURN.match(value)
            return f"{value[: found.start(1)]}{int(found[1]) + self.turns}{value[found.end(1) :]}" if found else value
        if isinstance(value, list):
            return [self._moved(one) for one in value]
        if isinstance(value, dict):
            return {name: one if name == _VENDORS else self._moved(one) for name, one in value.items()}
        return value

"""Storing records of commands: the entry `log://turn_N/{tool}/{slug}`.

Source: rows RU075, RU128, RU149, RU153; decisions C10, C12, C26.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from typing import Final

from msgspec.structs import replace
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import State, Tier, Visibility

from turnwright_core.chat.timeline import CALLS, COMMANDS, ERROR_TOOL
from turnwright_core.model_calls import REFUSED_BLOCKS, REFUSED_IMAGES, REFUSED_SILENCE
from turnwright_core.value_methods import to_attributes_json
from turnwright_executor.domain.command_record import CommandRecord
from turnwright_executor.domain.records import error_path
from turnwright_executor.wire.command_records import command_record_to_pb


def record_bytes(record: CommandRecord) -> int:
    """Size of a record, in bytes."""
    return command_record_to_pb(record).ByteSize()


def record_write(record: CommandRecord) -> EntryWrite:
    # For the store, setting RECORDED creates a new record, which never replaces another one.
    state = State.UNSPECIFIED if record.state is State.RECORDED else record.state
    return EntryWrite(record.path, _change(record, state, Visibility.UNSPECIFIED), Tier.SYSTEM)


def new_record_write(
    record: CommandRecord, turn: int | None = None, loop: int | None = None, expected_revision: int | None = None
) -> EntryWrite:
    """The write that makes a new record durable."""
    change = _change(record, record.state, Visibility.VISIBLE)
    return EntryWrite(record.path, change, Tier.SYSTEM, expected_revision, turn, loop)


def _change(record: CommandRecord, state: State, visibility: Visibility) -> SetEntry:
    # What a tag shows of a command are attributes like those of any other log entry.
    attributes = {"tool": record.tool, "target": record.target, **record.attributes}
    return SetEntry(
        body=record.body,
        attributes_json=to_attributes_json(attributes),
        visibility=visibility,
        state=state,
        outcome=record.outcome,
        record=command_record_to_pb(record).SerializeToString(),
    )


def moved_calls(write: EntryWrite, renamed: Mapping[str, str]) -> EntryWrite:
    """The reply with new paths for records whose paths were taken in the store."""
    change = write.change
    if not isinstance(change, SetEntry):
        return write
    attributes = json.loads(change.attributes_json or "{}")
    for call in attributes.get(CALLS, ()):
        if path := renamed.get(call.get("path", "")):
            call["path"] = path
    if paths := attributes.get(COMMANDS):
        attributes[COMMANDS] = [renamed.get(path, path) for path in paths]
    return replace(write, change=replace(change, attributes_json=to_attributes_json(attributes)))


def beat_write(path: str) -> EntryWrite:
    """The heartbeat of a client's command: a write that only changes the revision."""
    return EntryWrite(path, SetEntry(), Tier.SYSTEM)


_REFUSED: Final = {
    REFUSED_BLOCKS: "The model's vendor refuses reasoning or other opaque blocks of earlier replies. In this run they "
    "are not sent to it any more.",
    REFUSED_IMAGES: "The model's vendor refuses an earlier image. In this run earlier images are not sent any more.",
    REFUSED_SILENCE: "The model's vendor wants reasoning with every reply. In this run earlier ones without any are "
    "sent with an empty one.",
}


def refused_notes(turn: int, dropped: Iterable[str], known: Container[str]) -> list[EntryWrite]:
    """What people read when a vendor has refused something of the conversation that was not known before."""
    notes = [
        error_write(error_path(turn, name, ()), f"{name}:400", _REFUSED[name])
        for name in dropped
        if name in _REFUSED and name not in known
    ]
    # Not for the model, which needs to know nothing of it.
    return [replace(note, change=replace(note.change, visibility=Visibility.ARCHIVED)) for note in notes]


def error_write(path: str, outcome: str, body: str, call_id: str = "") -> EntryWrite:
    """An error that belongs to no command (RU153): `path` is `log://turn_N/error/{slug}`.

    `call_id` is the native call that it is about, if any.
    """
    attributes = {"tool": ERROR_TOOL, **({"call_id": call_id} if call_id else {})}
    change = SetEntry(
        body=body,
        attributes_json=to_attributes_json(attributes),
        visibility=Visibility.VISIBLE,
        state=State.FAILED,
        outcome=outcome,
    )
    return EntryWrite(path, change, Tier.SYSTEM)

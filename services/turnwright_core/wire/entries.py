"""Protobuf conversion of entries, cursors and writes."""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import Any, TypeVar, assert_never

from turnwright.store.v1 import write_pb2
from turnwright.types.v1 import cursor_pb2, entry_pb2

from turnwright_core.entries import (
    STATES,
    TIERS,
    VISIBILITIES,
    AppendEntry,
    CopyEntry,
    Cursor,
    Entry,
    EntryChange,
    EntryWrite,
    MoveEntry,
    RemoveEntry,
    SetEntry,
    State,
    Tier,
    Visibility,
)
from turnwright_core.errors import Reason, fault
from turnwright_core.wire.codec import codec
from turnwright_core.wire.times import time_from_pb, time_to_pb

E = TypeVar("E", bound=IntEnum)


cursor_to_pb, cursor_from_pb = codec(Cursor, cursor_pb2.Cursor)


def entry_to_pb(entry: Entry) -> entry_pb2.Entry:
    """Encode an entry, with its derived status."""
    message = entry_pb2.Entry(
        path=entry.path,
        scheme=entry.scheme,
        scope=entry.scope,
        body=entry.body,
        body_size_bytes=entry.body_size_bytes,
        attributes_json=entry.attributes_json,
        visibility=int(entry.visibility),  # type: ignore[arg-type]
        state=int(entry.state),  # type: ignore[arg-type]
        outcome=entry.outcome,
        status=entry.status,
        writer=int(entry.writer),  # type: ignore[arg-type]
        turn=entry.turn,
        loop=entry.loop,
        position=entry.position,
        write_count=entry.write_count,
        revision=entry.revision,
        hash=entry.hash,
        update_time=time_to_pb(entry.update_ms),
    )
    if entry.record:
        message.record.MergeFromString(entry.record)
    return message


def entry_from_pb(entry: entry_pb2.Entry) -> Entry:
    return Entry(
        path=entry.path,
        scheme=entry.scheme,
        scope=entry.scope,
        body=entry.body,
        body_size_bytes=entry.body_size_bytes,
        attributes_json=entry.attributes_json,
        visibility=VISIBILITIES[entry.visibility],
        state=STATES[entry.state],
        outcome=entry.outcome,
        writer=TIERS[entry.writer],
        turn=entry.turn,
        loop=entry.loop,
        position=entry.position,
        write_count=entry.write_count,
        revision=entry.revision,
        hash=entry.hash,
        update_ms=time_from_pb(entry.update_time),
        record=entry.record.SerializeToString() if entry.HasField("record") else b"",
    )


def write_to_pb(write: EntryWrite) -> write_pb2.EntryWrite:
    message = write_pb2.EntryWrite(
        path=write.path,
        writer=int(write.writer),  # type: ignore[arg-type]
        expected_revision=write.expected_revision,
        turn=write.turn,
        loop=write.loop,
    )
    match write.change:
        case SetEntry() as change:
            message.set.CopyFrom(
                write_pb2.SetEntry(
                    body=change.body,
                    attributes_json=change.attributes_json,
                    visibility=int(change.visibility),  # type: ignore[arg-type]
                    initial_visibility=int(change.initial_visibility),  # type: ignore[arg-type]
                    state=int(change.state),  # type: ignore[arg-type]
                    outcome=change.outcome,
                    merge_attributes_json=change.merge_attributes_json,
                )
            )
            if change.record is not None:
                message.set.record.SetInParent()
                message.set.record.MergeFromString(change.record)
        case AppendEntry(text, offset):
            message.append.CopyFrom(write_pb2.AppendEntry(text=text, offset=offset))
        case RemoveEntry():
            message.remove.SetInParent()
        case CopyEntry(to, visibility):
            message.copy.CopyFrom(write_pb2.CopyEntry(to=to, visibility=int(visibility)))  # type: ignore[arg-type]
        case MoveEntry(to, visibility):
            message.move.CopyFrom(write_pb2.MoveEntry(to=to, visibility=int(visibility)))  # type: ignore[arg-type]
        case _:
            assert_never(write.change)
    return message


def write_from_pb(message: write_pb2.EntryWrite) -> EntryWrite:
    """Decode a write. Raises InvalidError if it has no change or an unknown enum value."""
    has = message.HasField
    return EntryWrite(
        message.path,
        _change_from_pb(message),
        known(Tier, message.writer, "writer"),
        message.expected_revision if has("expected_revision") else None,
        message.turn if has("turn") else None,
        message.loop if has("loop") else None,
    )


def _change_from_pb(message: write_pb2.EntryWrite) -> EntryChange:
    match message.WhichOneof("change"):
        case "set":
            change = message.set
            has = change.HasField
            visibility, initial, state = change.visibility, change.initial_visibility, change.state
            # Most writes keep the current values: no look-up for those.
            return SetEntry(
                change.body if has("body") else None,
                change.attributes_json if has("attributes_json") else None,
                known(Visibility, visibility, "visibility") if visibility else Visibility.UNSPECIFIED,
                known(Visibility, initial, "initial_visibility") if initial else Visibility.UNSPECIFIED,
                known(State, state, "state") if state else State.UNSPECIFIED,
                change.outcome if has("outcome") else None,
                change.merge_attributes_json if has("merge_attributes_json") else None,
                change.record.SerializeToString() if has("record") else None,
            )
        case "append":
            offset = message.append.offset if message.append.HasField("offset") else None
            return AppendEntry(message.append.text, offset)
        case "remove":
            return RemoveEntry()
        case "copy":
            return CopyEntry(message.copy.to, known(Visibility, message.copy.visibility, "visibility"))
        case "move":
            return MoveEntry(message.move.to, known(Visibility, message.move.visibility, "visibility"))
        case _:
            raise fault(
                Reason.INVALID_FIELD,
                f"The write to {message.path!r} has no change: set one of set, append, remove, copy or move.",
                field="change",
            )


def known(kind: type[E], value: int, field: str) -> E:
    """Decode an enum value. Raises InvalidError for an unknown one."""
    member: E | None = _members(kind).get(value)
    if member is None:
        raise fault(Reason.INVALID_FIELD, f"{value} is not a valid {field}.", field=field)
    return member


# Enum look-up by value is slow (it goes through the metaclass), and each write needs four.
@cache
def _members(kind: type[IntEnum]) -> dict[int, Any]:
    return {int(member): member for member in kind}


def cut_body(entry: entry_pb2.Entry, offset: int, bytes_max: int) -> int:
    """Truncate an entry's body to this many bytes from an offset on, in whole characters; returns the actual offset."""
    data = entry.body.encode()
    if not offset and len(data) <= bytes_max:
        return 0
    begin = max(0, min(offset, len(data)))
    while begin < len(data) and _is_inside(data[begin]) and begin:
        begin -= 1
    end = min(begin + bytes_max, len(data))
    while begin < end < len(data) and _is_inside(data[end]):
        end -= 1
    entry.body = data[begin:end].decode()
    return begin


def _is_inside(byte: int) -> bool:
    """Whether a byte of UTF-8 continues a character."""
    return byte & 0b1100_0000 == 0b1000_0000

"""Protobuf conversion of entries, cursors and writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from turnwright.store.v1 import write_pb2
from turnwright.types.v1 import cursor_pb2, entry_pb2
from turnwright.types.v1.command_record_pb2 import CommandRecord

from turnwright_core.checks import invalid
from turnwright_core.entries import (
    STATES,
    TIERS,
    VISIBILITIES,
    AppendEntry,
    CopyEntry,
    Cursor,
    Entry,
    EntryWrite,
    MoveEntry,
    RemoveEntry,
    SetEntry,
    Tier,
)
from turnwright_core.wire.codec import FieldCodec, codec, known
from turnwright_core.wire.times import time_from_pb

cursor_to_pb, cursor_from_pb = codec(Cursor, cursor_pb2.Cursor)

_RECORD: Final[FieldCodec] = (CommandRecord.FromString, CommandRecord.SerializeToString)
_OPTIONAL_RECORD: Final[FieldCodec] = (
    lambda record: CommandRecord.FromString(record) if record else None,
    CommandRecord.SerializeToString,
)
_entry_to_pb, _ = codec(Entry, entry_pb2.Entry, record=_OPTIONAL_RECORD)


def entry_to_pb(entry: Entry) -> entry_pb2.Entry:
    """Encode an entry, with its derived status."""
    message = _entry_to_pb(entry)
    message.status = entry.status
    return message


# Written out: reading many entries is what takes longest at the start of a run.
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


_CHANGES: Final[dict[type[Any], tuple[str, Callable[[Any], Any], Callable[[Any], Any]]]] = {
    SetEntry: ("set", *codec(SetEntry, write_pb2.SetEntry, record=_RECORD)),
    AppendEntry: ("append", *codec(AppendEntry, write_pb2.AppendEntry)),
    RemoveEntry: ("remove", lambda _: write_pb2.RemoveEntry(), lambda _: RemoveEntry()),
    CopyEntry: ("copy", *codec(CopyEntry, write_pb2.CopyEntry)),
    MoveEntry: ("move", *codec(MoveEntry, write_pb2.MoveEntry)),
}
"""By kind of change: its field, encoder and decoder."""
_DECODERS: Final = {name: decode for name, _, decode in _CHANGES.values()}


def write_to_pb(write: EntryWrite) -> write_pb2.EntryWrite:
    name, encode, _ = _CHANGES[type(write.change)]
    fields: dict[str, Any] = {name: encode(write.change), "writer": write.writer}
    return write_pb2.EntryWrite(
        path=write.path,
        expected_revision=write.expected_revision,
        turn=write.turn,
        loop=write.loop,
        granted_tool=write.granted_tool,
        **fields,
    )


def write_from_pb(message: write_pb2.EntryWrite) -> EntryWrite:
    """Decode a write. Raises InvalidError if it has no change or an unknown enum value."""
    has = message.HasField
    name = message.WhichOneof("change")
    if name is None:
        raise invalid("change", f"The write to {message.path!r} has no change: set one of {', '.join(_DECODERS)}.")
    return EntryWrite(
        message.path,
        _DECODERS[name](getattr(message, name)),
        known(Tier, message.writer, "writer"),
        message.expected_revision if has("expected_revision") else None,
        message.turn if has("turn") else None,
        message.loop if has("loop") else None,
        message.granted_tool,
    )

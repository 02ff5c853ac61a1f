"""Protobuf conversion of entries, cursors and writes."""

from __future__ import annotations

from turnwright.store.v1 import write_pb2
from turnwright.types.v1 import cursor_pb2, entry_pb2
from turnwright_values.store import EntryWrite
from turnwright_values.types import Cursor, Entry, SearchHit

from turnwright_core.entries import STATES, TIERS, VISIBILITIES
from turnwright_core.wire.codec import codec, written
from turnwright_core.wire.times import time_from_pb

cursor_to_pb, cursor_from_pb = codec(Cursor, cursor_pb2.Cursor)
hit_to_pb, hit_from_pb = codec(SearchHit, entry_pb2.SearchHit)

_entry_to_pb, _ = codec(Entry, entry_pb2.Entry)


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


written(Entry, entry_to_pb, entry_from_pb)
write_to_pb, write_from_pb = codec(EntryWrite, write_pb2.EntryWrite)

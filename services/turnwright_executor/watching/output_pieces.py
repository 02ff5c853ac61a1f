"""Bodies that grow, as events: the piece that was added, never the whole body again.

The change feed tells the beginning of a body and its length. What was added since the last event is read off that
beginning while the body is short, and from the store where it is long. A body that was written anew is no growth:
its beginning is another one.
Source: architecture 3 (a change carries the byte length), 7, 12.4; rows RU174, RU245.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from turnwright.executor.v1 import event_pb2
from turnwright.types.v1 import entry_pb2

from turnwright_core.entries import Entry, State
from turnwright_core.limits import CHUNK_BYTES, EVENT_BODY_BYTES_MAX
from turnwright_core.streams import PRODUCER, record_of_channel

ABORTED: Final = "aborted:499"

ReadOutput = Callable[[str, int, int], Awaitable[str]]
"""(path, bytes before, bytes at most) -> that part of a body."""


def has_grown(before: entry_pb2.Entry | None, entry: Entry) -> bool:
    """Whether an entry that was growing has a body that goes on from what it was."""
    return (
        before is not None
        and before.state == entry_pb2.STATE_STREAMING
        and entry.body_size_bytes >= before.body_size_bytes
        and entry.body.startswith(before.body)
    )


def is_growth_only(before: entry_pb2.Entry, entry: Entry) -> bool:
    """Whether nothing but its body has changed of an entry that has grown."""
    return (
        entry.state is State.STREAMING
        and before.visibility == int(entry.visibility)
        and (before.turn, before.loop) == (entry.turn, entry.loop)
        and before.attributes_json == entry.attributes_json
    )


async def pieces(
    before: entry_pb2.Entry, entry: Entry, read_body: ReadOutput
) -> AsyncIterator[event_pb2.OutputAppended]:
    """What was added, in pieces that a message can carry; an empty one where nothing was. Raises TurnwrightError."""
    offset = before.body_size_bytes
    whole = entry.body.encode()
    is_whole = len(whole) == entry.body_size_bytes
    while True:
        size = min(entry.body_size_bytes - offset, CHUNK_BYTES)
        text = whole[offset:].decode() if is_whole else await read_body(entry.path, offset, size) if size else ""
        end = offset + len(text.encode())
        is_last = end >= entry.body_size_bytes or not text
        # Until the last piece the entry is not what this revision says: whoever breaks off in between begins again.
        state = entry if is_last else before
        yield event_pb2.OutputAppended(
            path=entry.path, offset=offset, text=text, write_count=state.write_count, revision=state.revision
        )
        if is_last:
            return
        offset = end


def grown(entry: entry_pb2.Entry, event: event_pb2.OutputAppended) -> entry_pb2.Entry:
    """The entry after a piece; its body stays cut as in every event."""
    after = entry_pb2.Entry()
    after.CopyFrom(entry)
    if event.text:
        data = entry.body.encode()
        if len(data) == event.offset:
            after.body = (data + event.text.encode())[:EVENT_BODY_BYTES_MAX].decode(errors="ignore")
        after.hash = ""
    after.body_size_bytes = event.offset + len(event.text.encode())
    after.write_count, after.revision = event.write_count, event.revision
    return after


def cancellation(entry: Entry) -> event_pb2.OutputCancelled | None:
    """What the producer of a channel that was cancelled is told; None for other entries, and if it did so itself."""
    channel = record_of_channel(entry.path)
    if channel is None or entry.state is not State.CANCELLED:
        return None
    if entry.outcome == ABORTED and PRODUCER in entry.attributes:
        return None
    return event_pb2.OutputCancelled(path=channel[0], channel=channel[1], reason=entry.outcome)

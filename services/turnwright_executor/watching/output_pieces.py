"""Growing bodies as events: only the appended piece is sent, never the whole body again.

The change feed has the beginning of a body and its length. What was appended since the last event is taken from that
beginning if the body is short, else it is read from the store. A rewritten body has another beginning, so it does not
count as growth.
Source: architecture 3 (a change carries the byte length), 7, 12.4; rows RU174, RU245.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from turnwright.executor.v1 import event_pb2
from turnwright.types.v1 import entry_pb2

from turnwright_core.entries import Entry, State
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.streams import PRODUCER, record_of_channel

ABORTED: Final = "aborted:499"

ReadOutput = Callable[[str, int, int], Awaitable[str]]
"""(path, offset in bytes, maximum bytes) -> that part of a body."""


def has_grown(before: entry_pb2.Entry, entry: Entry) -> bool:
    """Whether a streaming entry has a longer body than before, so that a piece can be sent."""
    return (
        before.state == entry_pb2.STATE_STREAMING
        and entry.body_size_bytes >= before.body_size_bytes
        and entry.body.startswith(before.body)
    )


def is_growth_only(before: entry_pb2.Entry, entry: Entry) -> bool:
    """Whether nothing but the body has changed."""
    return (
        entry.state is State.STREAMING
        and before.visibility == int(entry.visibility)
        and (before.turn, before.loop) == (entry.turn, entry.loop)
        and before.attributes_json == entry.attributes_json
    )


async def appended_messages(
    before: entry_pb2.Entry, entry: Entry, read_body: ReadOutput
) -> AsyncIterator[event_pb2.OutputAppended]:
    """The appended text in pieces that fit into messages; an empty one if there is none. Raises TurnwrightError."""
    offset = before.body_size_bytes
    whole = entry.body.encode()
    is_whole = len(whole) == entry.body_size_bytes
    while True:
        size = min(entry.body_size_bytes - offset, CHUNK_BYTES)
        text = whole[offset:].decode() if is_whole else await read_body(entry.path, offset, size) if size else ""
        end = offset + len(text.encode())
        is_last = end >= entry.body_size_bytes or not text
        # Until the last piece the entry is not at this revision: if this is interrupted, it starts over.
        state = entry if is_last else before
        yield event_pb2.OutputAppended(
            path=entry.path, offset=offset, text=text, write_count=state.write_count, revision=state.revision
        )
        if is_last:
            return
        offset = end


def cancellation(entry: Entry) -> event_pb2.OutputCancelled | None:
    """The event that tells a channel's producer that it was cancelled; None for others, and if the producer did it."""
    channel = record_of_channel(entry.path) if entry.state is State.CANCELLED else None
    if channel is None:
        return None
    if entry.outcome == ABORTED and PRODUCER in entry.attributes:
        return None
    return event_pb2.OutputCancelled(path=channel[0], channel=channel[1], reason=entry.outcome)

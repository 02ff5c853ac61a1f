"""Construction of events for watchers, one function each; a hub numbers and sends them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace
from turnwright.executor.v1 import event_pb2, session_event_pb2
from turnwright.executor.v1.executor_service_pb2 import WatchRunResponse
from turnwright.types.v1 import entry_pb2
from turnwright_values.types import Entry, Loop, State, Turn, Usage

from turnwright_core.batching import split_by_weight
from turnwright_core.chat.deltas import Delta
from turnwright_core.chat.message import Message, Role
from turnwright_core.chat.reply import PartialReply
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.value_methods import status_of
from turnwright_core.wire.deltas import delta_to_pb
from turnwright_core.wire.messages import message_to_pb
from turnwright_core.wire.proposals import decision_to_pb
from turnwright_core.wire.run_view import pieces_of
from turnwright_core.wire.runs import turn_to_pb, usage_to_pb
from turnwright_core.wire.times import seconds_to_pb
from turnwright_executor.domain.budgets import exhaustion_in
from turnwright_executor.ports.publishing import (
    Activity,
    StreamBegan,
    StreamBroke,
    StreamEnded,
    StreamEvent,
    StreamGrew,
)

PARTIAL_CHARS: Final = CHUNK_BYTES // 4
"""Maximum length of a piece of a streaming message, in code points of four bytes at most."""

_PATH_OVERHEAD: Final = 4
"""Bytes of a path in a list, besides its text."""


def turn_moved(turn: Turn) -> WatchRunResponse:
    moved = WatchRunResponse()
    part = moved.turn_started if turn.result is None else moved.turn_finished
    part.turn.CopyFrom(turn_to_pb(turn))
    return moved


def stream_moved(turn: int, event: StreamEvent) -> WatchRunResponse:
    match event:
        case StreamBegan():
            return WatchRunResponse(stream_started=event_pb2.StreamStarted(turn=turn))
        case StreamEnded(finish, usage):
            ended = event_pb2.StreamFinished(turn=turn, finish=finish, usage=usage_to_pb(usage))
            return WatchRunResponse(stream_finished=ended)
        case StreamBroke(reason):
            return WatchRunResponse(stream_cancelled=event_pb2.StreamCancelled(turn=turn, reason=reason))
        case StreamGrew(delta):
            return stream_grew(turn, () if delta is None else (delta,))
        case _:
            return stream_grew(turn, (event,))


def stream_grew(turn: int, deltas: Sequence[Delta]) -> WatchRunResponse:
    moved = WatchRunResponse()
    moved.stream_delta.turn = turn
    for delta in deltas:
        delta_to_pb(delta, moved.stream_delta.deltas.add())
    return moved


def entry_moved(entry: entry_pb2.Entry, *, is_new: bool) -> WatchRunResponse:
    moved = WatchRunResponse()
    part = moved.message_added if is_new else moved.message_updated
    part.entry.CopyFrom(entry)
    return moved


def whole_entry(entry: entry_pb2.Entry, *, is_new: bool, count: int = 1) -> list[WatchRunResponse]:
    """An entry, and the rest of a long message in pieces (C50). `count`: the fewest events; some may be empty."""
    head, pieces = pieces_of(entry)
    moved = [entry_moved(head, is_new=is_new), *(WatchRunResponse(output_appended=piece) for piece in pieces)]
    end = event_pb2.OutputAppended(
        path=entry.path, offset=entry.body_size_bytes, write_count=entry.write_count, revision=entry.revision
    )
    return [*moved, *(WatchRunResponse(output_appended=end) for _ in range(count - len(moved)))]


def command_recorded(ended: entry_pb2.Entry) -> WatchRunResponse:
    """The event of a command's record before its end, when creation and end came in the same write (C58)."""
    event = WatchRunResponse()
    entry = event.message_added.entry
    entry.CopyFrom(ended)
    entry.state, entry.status = entry_pb2.STATE_RECORDED, status_of(State.RECORDED)
    entry.outcome, entry.body, entry.body_size_bytes = "", "", 0
    entry.record.recorded.SetInParent()
    return event


def messages_truncated(from_index: int, paths: Sequence[str]) -> Iterator[WatchRunResponse]:
    """Messages were taken away from a place on; many come in several events."""
    for part in split_by_weight(paths, lambda path: len(path.encode()) + _PATH_OVERHEAD):
        event = session_event_pb2.MessagesTruncated(from_index=from_index, paths=part)
        yield WatchRunResponse(messages_truncated=event)


def proposal_resolved(entry: Entry) -> WatchRunResponse:
    event = event_pb2.ProposalResolved(decision=decision_to_pb(entry.path, entry))
    return WatchRunResponse(proposal_resolved=event)


def budget_exhausted(loop: Loop) -> WatchRunResponse | None:
    """The event for a loop that ended at a budget limit; None for any other loop."""
    found = exhaustion_in(loop.reason) if loop.end_ms else None
    if found is None:
        return None
    kind = event_pb2.BudgetKind.Value(f"BUDGET_KIND_{found.kind.name}")
    event = event_pb2.BudgetExhausted(loop=loop.sequence, kind=kind, of_run=found.of_run, detail=found.detail)
    return WatchRunResponse(budget_exhausted=event)


def progress(activity: Activity, turn: int, detail: str, wait_s: float) -> WatchRunResponse:
    phase = event_pb2.RunProgress.Phase.ValueType(int(activity))
    event = event_pb2.RunProgress(phase=phase, turn=turn, detail=detail, wait=seconds_to_pb(wait_s))
    return WatchRunResponse(run_progress=event)


def add_partial(parts: list[event_pb2.Snapshot], turn: int, reply: PartialReply) -> None:
    """Add the streaming message to the last part of a snapshot; a long one is split over further parts."""
    parts[-1].partial.turn = turn
    for name, text in (("reasoning", reply.thoughts), ("content", reply.text)):
        for begin in range(0, len(text), PARTIAL_CHARS):
            if getattr(parts[-1].partial, name):
                parts.append(event_pb2.Snapshot(part=len(parts), run=parts[-1].run))
            parts[-1].partial.turn = turn
            setattr(parts[-1].partial, name, text[begin : begin + PARTIAL_CHARS])
    rest = replace(reply.message(), parts=(), reasoning="")
    if rest != Message(Role.ASSISTANT):
        message = message_to_pb(rest)
        if message.ByteSize() + parts[-1].ByteSize() > CHUNK_BYTES:
            parts.append(event_pb2.Snapshot(part=len(parts), run=parts[-1].run))
            parts[-1].partial.turn = turn
        parts[-1].partial.message.CopyFrom(message)
    if reply.usage != Usage():
        parts[-1].partial.usage.CopyFrom(usage_to_pb(reply.usage))


def in_batches(events: Sequence[WatchRunResponse]) -> Iterator[WatchRunResponse]:
    """Combine events into as few messages as possible: the cost of a message is many times that of an event."""
    return map(as_one, split_by_weight(events, WatchRunResponse.ByteSize))


def as_one(events: Sequence[WatchRunResponse]) -> WatchRunResponse:
    """Combine events into one message."""
    last = events[-1]
    if len(events) == 1:
        return last
    message = WatchRunResponse(cursor=last.cursor, time=last.time)
    message.batch.events.extend(events)
    return message

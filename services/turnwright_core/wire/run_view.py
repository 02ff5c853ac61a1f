"""The state of a run folded from its events: a hub folds what it publishes, a client what it receives.

Folding any prefix of a run's events gives the same view as a snapshot taken at that moment (row RE08). Snapshots come
in parts and replace everything at the last one. Heartbeats and progress change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct, field
from turnwright.executor.v1 import event_pb2, executor_service_pb2, session_event_pb2
from turnwright.executor.v1.executor_service_pb2 import WatchRunResponse
from turnwright.types.v1 import cursor_pb2, entry_pb2, plan_pb2, proposal_pb2, run_pb2, session_command_pb2, session_pb2

from turnwright_core.chat.message import Message, Role
from turnwright_core.chat.reply import PartialReply, partial_reply
from turnwright_core.limits import BODY_BYTES_MAX, CHUNK_BYTES, EVENT_BODY_BYTES_MAX, WHOLE_IN_EVENTS
from turnwright_core.plans.plan import WatchedPlans
from turnwright_core.text import cut_bytes
from turnwright_core.wire.deltas import delta_from_pb
from turnwright_core.wire.messages import message_from_pb
from turnwright_core.wire.runs import usage_from_pb

Event = executor_service_pb2.WatchRunResponse


class Partial(Struct):
    """A message that is still streaming. Equality compares the content, however it was split."""

    turn: int
    reply: PartialReply = field(default_factory=PartialReply)

    @property
    def content(self) -> str:
        return self.reply.text

    @property
    def reasoning(self) -> str:
        return self.reply.thoughts

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Partial):
            return NotImplemented
        mine, theirs = (self.turn, self.reply.usage), (other.turn, other.reply.usage)
        return mine == theirs and self.reply.message() == other.reply.message()

    __hash__ = None  # type: ignore[assignment] # it grows


class RunView(Struct):
    """The state of a run according to its events. Start empty, or with a run returned by a call.

    `entries` and `proposals` are keyed by path. Bodies of prompts, replies and reasoning are whole, others truncated
    after 16384 bytes, as in events. `held` has the plans that a watch with plans was sent.
    """

    run: run_pb2.Run | None = None
    entries: dict[str, entry_pb2.Entry] = field(default_factory=dict)
    proposals: dict[str, proposal_pb2.Proposal] = field(default_factory=dict)
    partial: Partial | None = None
    held: WatchedPlans[plan_pb2.Plan, list[plan_pb2.PlanItem]] = field(default_factory=WatchedPlans)
    state: session_pb2.SessionState.ValueType = session_pb2.SESSION_STATE_UNSPECIFIED
    """What the run is doing."""
    compression: session_pb2.HistoryCompression | None = None
    """That the history is being compressed."""
    draft: str | None = None
    """The draft of the next message."""
    draft_usage: session_pb2.DraftUsage | None = None
    """What the draft would take of the context window."""
    queue: list[session_command_pb2.QueuedCommand] = field(default_factory=list)
    """What waits, the next one first."""
    pause_reasons: list[session_event_pb2.PauseReason] = field(default_factory=list)
    """Why the run is paused."""
    cursor: cursor_pb2.EventCursor | None = None
    _parts: list[event_pb2.Snapshot] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.run is not None:
            self._take(self.run)

    def _take(self, run: run_pb2.Run) -> None:
        """Take a run without its state, which events change by itself, and its title, which they do not tell."""
        self.state = run.state or self.state
        if run.state or run.title:
            given, run = run, run_pb2.Run()
            run.CopyFrom(given)
            run.ClearField("state")
            run.ClearField("title")
        self.run = run

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RunView):
            return NotImplemented
        return self._state() == other._state()

    __hash__ = None  # type: ignore[assignment] # it changes

    def _state(self) -> tuple[object, ...]:
        plans = list(self.held.plans.items()), self.held.legacy
        session = self.state, self.compression, self.draft, self.draft_usage, self.queue, self.pause_reasons
        return self.run, session, self.entries, self.proposals, self.partial, plans

    def apply(self, event: Event) -> None:
        """Fold one event in. Kinds that change nothing are ignored, unknown ones too."""
        kind = event.WhichOneof("event")
        if kind is None or kind == "heartbeat":
            return
        self._fold(kind, event)
        if kind != "snapshot" or event.snapshot.last:
            self.cursor = event.cursor

    def _fold(self, kind: str, event: Event) -> None:  # noqa: C901, PLR0912 - one case for each kind
        match kind:
            case "snapshot":
                self._add_part(event.snapshot)
            case "stream_started":
                self.partial = Partial(event.stream_started.turn)
            case "stream_delta":
                for one in event.stream_delta.deltas:
                    if self.partial and (delta := delta_from_pb(one)):
                        self.partial.reply.add(delta)
            case "stream_cancelled":
                self.partial = None
            case "message_added":
                self._keep(event.message_added.entry)
            case "message_updated":
                self._keep(event.message_updated.entry)
            case "output_appended":
                piece = event.output_appended
                if before := self.entries.get(piece.path):
                    self.entries[piece.path] = with_piece(before, piece)
            case "message_removed":
                self._forget(event.message_removed.path)
            case "messages_truncated":
                for path in event.messages_truncated.paths:
                    self._forget(path)
            case "proposal_pending":
                self.proposals[event.proposal_pending.proposal.path] = event.proposal_pending.proposal
            case "proposal_resolved":
                self.proposals.pop(event.proposal_resolved.decision.path, None)
            case "run_state":
                self._take(event.run_state.run)
            case "thread_updated":
                # A copy: the run is part of an event, which others may still read.
                run = run_pb2.Run()
                if self.run is not None:
                    run.CopyFrom(self.run)
                run.settings.CopyFrom(event.thread_updated.settings)
                self.run = run
            case "queue_updated":
                self.queue = list(event.queue_updated.commands)
            case "draft_updated":
                self.draft, self.draft_usage = _given(event.draft_updated, "text", "usage")
            case "runtime_updated":
                self.state, [self.compression] = (
                    event.runtime_updated.state,
                    _given(event.runtime_updated, "compression"),
                )
                if self.state != session_pb2.SESSION_STATE_PAUSED:
                    self.pause_reasons = []
            case "pause_required":
                self.pause_reasons = list(event.pause_required.reasons)
            case "plan_updated":
                self.held.update(event.plan_updated.plan_id, event.plan_updated)
            case "plan_removed":
                self.held.remove(event.plan_removed)
            case "legacy_plan":
                self.held.legacy = list(event.legacy_plan.items)

    def _add_part(self, part: event_pb2.Snapshot) -> None:
        if part.part == 0:
            self._parts.clear()
        self._parts.append(part)
        if part.last:
            parts, self._parts = self._parts, []
            self._replace(parts)

    def _replace(self, parts: list[event_pb2.Snapshot]) -> None:
        last = parts[-1]
        self._take(last.run)
        self.state = last.state
        self.draft, self.draft_usage, self.compression = _given(last, "draft", "draft_usage", "compression")
        self.queue, self.pause_reasons = list(last.queue), list(last.pause_reasons)
        self.entries = {entry.path: entry for part in parts for entry in part.entries}
        for piece in (piece for part in parts for piece in part.bodies):
            self.entries[piece.path] = with_piece(self.entries[piece.path], piece)
        self.proposals = {proposal.path: proposal for proposal in last.proposals}
        legacy = list(last.legacy_plan.items) if last.HasField("legacy_plan") else None
        self.held.replace(((plan.plan_id, plan) for part in parts for plan in part.plans), legacy)
        self.partial = None
        if last.HasField("partial"):
            pieces = [part.partial for part in parts if part.HasField("partial")]
            contents, thoughts = [piece.content for piece in pieces], [piece.reasoning for piece in pieces]
            message = last.partial.message
            rest = message_from_pb(message) if last.partial.HasField("message") else Message(Role.ASSISTANT)
            reply = partial_reply(contents, thoughts, rest, usage_from_pb(last.partial.usage))
            self.partial = Partial(last.partial.turn, reply)

    def _keep(self, entry: entry_pb2.Entry) -> None:
        """Keep an entry. The text of a message that is streaming stays visible until the entry of the reply comes."""
        self.entries[entry.path] = entry
        if self.partial is not None and entry.path == f"assistant://{self.partial.turn}":
            self.partial = None

    def _forget(self, path: str) -> None:
        self.entries.pop(path, None)
        self.proposals.pop(path, None)

    def apply_all(self, events: Iterable[Event]) -> RunView:
        for event in events:
            self.apply(event)
        return self

    def timeline(self) -> list[entry_pb2.Entry]:
        return sorted(self.entries.values(), key=lambda entry: entry.position)


def _given(message: Any, *fields: str) -> list[Any]:
    """Fields of a message; None for one that is absent."""
    return [getattr(message, field) if message.HasField(field) else None for field in fields]


def pieces_of(entry: entry_pb2.Entry) -> tuple[entry_pb2.Entry, list[event_pb2.OutputAppended]]:
    """An entry with the beginning of its body, and the rest of a long one in pieces (C50)."""
    if len(entry.body) * 4 <= CHUNK_BYTES or len(entry.body.encode()) <= CHUNK_BYTES:
        return entry, []
    head = entry_pb2.Entry()
    head.CopyFrom(entry)
    head.body = cut_bytes(entry.body, CHUNK_BYTES)
    return head, list(_rest(entry, head.body))


def _rest(entry: entry_pb2.Entry, head: str) -> Iterator[event_pb2.OutputAppended]:
    begin, offset = len(head), len(head.encode())
    while begin < len(entry.body):
        # Only so many code points can fit: the rest need not be encoded for each piece.
        text = cut_bytes(entry.body[begin : begin + CHUNK_BYTES], CHUNK_BYTES)
        yield event_pb2.OutputAppended(
            path=entry.path, offset=offset, text=text, write_count=entry.write_count, revision=entry.revision
        )
        begin, offset = begin + len(text), offset + len(text.encode())


def with_piece(entry: entry_pb2.Entry, piece: event_pb2.OutputAppended) -> entry_pb2.Entry:
    """The entry with a piece appended; unless it is a message, its body stays truncated as in every event."""
    after = entry_pb2.Entry()
    after.CopyFrom(entry)
    end = piece.offset + len(piece.text.encode())
    if piece.text:
        data = entry.body.encode()
        if len(data) == piece.offset:
            bytes_max = BODY_BYTES_MAX if entry.scheme in WHOLE_IN_EVENTS else EVENT_BODY_BYTES_MAX
            after.body = (data + piece.text.encode())[:bytes_max].decode(errors="ignore")
        if end > entry.body_size_bytes:
            after.hash = ""
    after.body_size_bytes = max(end, entry.body_size_bytes)
    after.write_count, after.revision = piece.write_count, piece.revision
    return after


def events_of(message: WatchRunResponse) -> Iterable[WatchRunResponse]:
    """The events of a message: those of a batch in order, or the message itself."""
    return message.batch.events if message.HasField("batch") else (message,)

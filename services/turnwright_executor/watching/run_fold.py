"""The state of a run, folded from its events as clients fold them, and what of it is yet to be told."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from msgspec import Struct, field, json
from turnwright.executor.v1 import event_pb2, session_event_pb2
from turnwright.executor.v1.executor_service_pb2 import WatchRunResponse
from turnwright.types.v1 import cursor_pb2, entry_pb2, run_pb2, session_command_pb2, session_pb2
from turnwright_values.types import Cursor, Entry, Loop, QueuedCommand, RequestKind, SessionState, State, Turn

from turnwright_core.chat.reply import PartialReply
from turnwright_core.chat.timeline import kind_of
from turnwright_core.entries import STATES
from turnwright_core.limits import CHUNK_BYTES, TARGET_CHARS_MAX
from turnwright_core.plans.plan import part_of
from turnwright_core.runs import QUEUED, RUNNING
from turnwright_core.session import (
    DRAFT,
    EDIT_SCHEME,
    TOKENS,
    WINDOW_TOKENS,
    QueuedEdit,
    Wait,
    merge_queue,
    queued_loop,
    session_state,
)
from turnwright_core.text import scheme_of
from turnwright_core.wire.command_records import wait_in
from turnwright_core.wire.entries import entry_from_pb, entry_to_pb
from turnwright_core.wire.proposals import is_of_agents, proposal_to_pb
from turnwright_core.wire.run_view import Partial, RunView, pieces_of
from turnwright_core.wire.runs import queued_command_to_pb
from turnwright_executor.domain.endings import REJECTED_OUTCOME
from turnwright_executor.ports.publishing import StreamBegan, StreamBroke, StreamEnded, StreamEvent, StreamGrew
from turnwright_executor.watching import events
from turnwright_executor.watching.plans import FedPlan, FedPlans, PlanTeller
from turnwright_executor.watching.replies import entry_in_parts

# Why a run is paused: what its commands wait for, and what a rule has denied. Source: row RE06.

_PauseReason = session_event_pb2.PauseReason
_Compression = session_pb2.HistoryCompression
_RULES: Final[Mapping[str | None, _PauseReason.Rule.ValueType]] = {
    "files": _PauseReason.RULE_FILES,
    "command": _PauseReason.RULE_COMMAND,
    "call": _PauseReason.RULE_CALL,
}
"""By the kind of an effect."""


def pause_reason(entry: entry_pb2.Entry, wait: Wait | None) -> _PauseReason | None:
    """The reason in a command's record, by what it waits for; None unless that is approval, or a rule denied it."""
    record = entry.record
    if wait is Wait.APPROVAL:
        effect = record.proposed.effect
        rule = _RULES.get(effect.WhichOneof("kind"), _PauseReason.RULE_UNSPECIFIED)
        about = effect.command.command if rule == _PauseReason.RULE_COMMAND else _target(entry)
        return _reason(_PauseReason.TYPE_CONFIRMATION, entry, about, rule)
    is_denied = entry.outcome == REJECTED_OUTCOME and not record.settled.HasField("decision")
    if is_denied and record.HasField("ordinal"):
        return _reason(_PauseReason.TYPE_DENIAL, entry, _target(entry), _PauseReason.RULE_APPROVAL_RULE)
    return None


def _target(entry: entry_pb2.Entry) -> str:
    return str(entry_from_pb(entry).attributes.get("target", ""))


def _reason(
    reason: _PauseReason.Type.ValueType, entry: entry_pb2.Entry, about: str, rule: _PauseReason.Rule.ValueType
) -> _PauseReason:
    return _PauseReason(
        type=reason,
        tool=entry.record.tool,
        command=" ".join(about.split())[:TARGET_CHARS_MAX],
        rule=rule,
        path=entry.path,
        call_id=entry.record.call_id,
    )


_QUEUED_EDIT: Final = json.Decoder(QueuedEdit)
_UINT32_MAX: Final = 2**32 - 1
SESSION_SCHEMES: Final = (EDIT_SCHEME, scheme_of(DRAFT))
"""Schemes of entries that are told by events of their own: the draft, and edits that wait."""


class FreshRun(Struct, frozen=True):
    """A run that was just created."""

    run: run_pb2.Run
    cursor: Cursor
    """Before its first change."""


class BeforeCall(Struct, frozen=True):
    """Where a run's hub stood when a call that changes the run began."""

    events: cursor_pb2.EventCursor
    moment: int
    """The revision of the run up to which events were published."""

    def cursor(self, stored: cursor_pb2.Cursor) -> cursor_pb2.EventCursor:
        """The cursor for the answer; `stored` is that of the run before the call, as the store says.

        A repeated call gets the answer of the first one, after which more may have been published. Its cursor is
        empty: a watch from there begins with a snapshot.
        """
        return self.events if self.moment <= stored.run_revision else cursor_pb2.EventCursor()


class RunFold(Struct):
    """A run as its events tell it, and the rows behind its session that no event tells as they are."""

    view: RunView = field(default_factory=lambda: RunView(run_pb2.Run()))
    plans: FedPlans = field(default_factory=FedPlans)
    _parts: PartialReply = field(default_factory=PartialReply)
    """The message that is streaming, in parts."""
    _waits: dict[str, Wait] = field(default_factory=dict)
    """What commands wait for, by path; those of the run's latest turn count."""
    _reasons: dict[str, session_event_pb2.PauseReason] = field(default_factory=dict)
    """What may keep the run paused, by path; the same."""
    _loops: dict[int, QueuedCommand] = field(default_factory=dict)
    """The loops that have not begun, by sequence."""
    _edits: dict[str, tuple[int, QueuedEdit]] = field(default_factory=dict)
    """Edits that wait, by path, with their positions."""
    _compacting: int = 0
    """Number of the open turn in which a summary is asked for; 0: none is."""

    @property
    def entries(self) -> Mapping[str, entry_pb2.Entry]:
        return self.view.entries

    @property
    def run(self) -> run_pb2.Run:
        assert self.view.run is not None
        return self.view.run

    @property
    def state(self) -> SessionState:
        """As last published."""
        return SessionState(self.view.state)

    def load(
        self,
        run: run_pb2.Run,
        entries: Iterable[Entry],
        queue: Iterable[QueuedCommand] = (),
        plans: Iterable[FedPlan] = (),
        turns: Iterable[Turn] = (),
    ) -> None:
        """Replace the state by what the store has now; a message that still streams is kept.

        `turns` has the latest one if a summary may be asked for in it.
        """
        partial = self.view.partial
        streams = partial is not None and run.status == RUNNING and run.turn == partial.turn
        self.view = view = RunView(run, partial=partial if streams else None)
        self._waits, self._reasons, self._edits = {}, {}, {}
        self.plans.entries, self.plans.known = view.entries, {one.value.plan_id: one for one in plans}
        for entry in entries:
            if entry.path == DRAFT:
                view.draft, view.draft_usage = entry.body, draft_usage(entry)
            elif entry.scheme == EDIT_SCHEME:
                self.take_edit(entry)
            else:
                self._keep(entry)
        self.take_queue(queue)
        view.queue = self.queue_now()
        view.state = session_pb2.SessionState.ValueType(int(self.state_now()))
        self._compacting = 0
        self.take_turns(turns)
        view.compression = self.compression_now()
        view.pause_reasons = self.reasons_now(run.turn)

    def _keep(self, entry: Entry) -> None:
        message = entry_to_pb(entry)
        self.view.apply(WatchRunResponse(message_added=event_pb2.MessageAdded(entry=message)))
        if message.state == entry_pb2.STATE_PROPOSED and not is_of_agents(message):
            self.view.proposals[entry.path] = proposal_to_pb(entry)
        self.note(message)

    # What is yet to be told ---------------------------------------------------------------------------------------

    def state_now(self, run: run_pb2.Run | None = None) -> SessionState:
        """What the run is doing by now, told or not; `run` is its row where that is newer."""
        run = run or self.run
        prefix = f"log://turn_{run.turn}/"
        waits = {wait for path, wait in self._waits.items() if path.startswith(prefix)}
        return session_state(run.loop.status, run.loop.reason, run.loops_queued, waits)

    def compression_now(self) -> session_pb2.HistoryCompression | None:
        """How the history is being compressed by now, told or not."""
        if not self._compacting:
            return None
        phase = _Compression.PHASE_ASKING
        if f"assistant://{self._compacting}" in self.entries:
            phase = _Compression.PHASE_STORED
        elif self.view.partial and self.view.partial.turn == self._compacting:
            phase = _Compression.PHASE_WRITING
        return _Compression(phase=phase, reason=_Compression.REASON_WINDOW, turn=self._compacting)

    def take_turns(self, turns: Iterable[Turn]) -> None:
        """Note whether a summary is asked for in the open turn."""
        for turn in turns:
            is_asked = turn.result is None and turn.request.kind is RequestKind.COMPACTION
            self._compacting = turn.number if is_asked else 0

    def reasons_now(self, turn: int) -> list[session_event_pb2.PauseReason]:
        """Why the run is paused, as far as it is told to be; in the order of the commands of its latest turn."""
        if self.state is not SessionState.PAUSED:
            return []
        prefix = f"log://turn_{turn}/"
        found = [(self.entries[path].position, path) for path in self._reasons if path.startswith(prefix)]
        return [self._reasons[path] for _, path in sorted(found)]

    def queue_now(self) -> list[session_command_pb2.QueuedCommand]:
        """What waits by now."""
        if not (self._loops or self._edits):
            return []
        edits = [edit for _, edit in sorted(self._edits.values(), key=lambda pair: pair[0])]
        return list(map(queued_command_to_pb, merge_queue(self._loops, edits)))

    def take_edit(self, entry: Entry) -> None:
        if entry.state is State.RECORDED:
            self._edits[entry.path] = (entry.position, _QUEUED_EDIT.decode(entry.attributes_json))
        else:
            self._edits.pop(entry.path, None)

    def leaves_unknown_loop(self, paths: Iterable[str]) -> bool:
        """Whether an edit at one of these paths, which leaves the queue, has brought a loop that nobody told of."""
        edits = (self._edits[path][1] for path in paths if path in self._edits)
        return any(edit.loop and edit.loop not in self._loops for edit in edits)

    def drop_edits(self, paths: Iterable[str]) -> None:
        """Note that edits have left the queue."""
        for path in paths:
            self._edits.pop(path, None)

    def take_loops(self, loops: Iterable[Loop]) -> None:
        """Note which loops have not begun."""
        for loop in loops:
            if loop.status == QUEUED:
                self._loops[loop.sequence] = queued_loop(loop)
            else:
                self._loops.pop(loop.sequence, None)

    def take_queue(self, queue: Iterable[QueuedCommand]) -> None:
        """Note the loops in a list of the queue; those that edits bring are not told there."""
        brought = {edit.loop for _, edit in self._edits.values()}
        self._loops = {one.loop: one for one in queue if one.loop and one.loop not in brought}

    def place_of(self, paths: Iterable[str]) -> int:
        """Place of the first of these messages in the list of messages."""
        gone = set(paths)
        messages = (entry for entry in self.view.timeline() if kind_of(entry_from_pb(entry)))
        place = 0
        for entry in messages:
            if entry.path in gone:
                break
            place += 1
        return place

    # Events -------------------------------------------------------------------------------------------------------

    def note(self, entry: entry_pb2.Entry) -> None:
        if entry.scheme != "log":
            return
        self.forget(entry.path)
        wait = wait_in(STATES[entry.state], entry.record) if entry.writer == entry_pb2.TIER_SYSTEM else None
        if wait:
            self._waits[entry.path] = wait
        if reason := pause_reason(entry, wait):
            self._reasons[entry.path] = reason

    def forget(self, path: str) -> None:
        """Note that an entry is gone."""
        if not (part := part_of(path)).version:
            self.plans.known.pop(part.plan_id, None)
        self._waits.pop(path, None)
        self._reasons.pop(path, None)

    def stream(self, turn: int, event: StreamEvent) -> None:
        """Update the streaming message directly, because deltas are many."""
        match event:
            case StreamBegan():
                self.view.partial, self._parts = Partial(turn), PartialReply()
            case StreamBroke():
                self.view.partial = None
            case StreamEnded():
                pass
            case StreamGrew(delta, parts):
                if self.view.partial:
                    if delta is not None:
                        self.view.partial.reply.add(delta)
                    for part in parts:
                        self._parts.add(part)
            case _:
                if self.view.partial:
                    self.view.partial.reply.add(event)
                    self._parts.add(event)

    def snapshot(
        self, cursor: cursor_pb2.EventCursor, teller: PlanTeller | None = None, *, is_raw: bool = False
    ) -> list[WatchRunResponse]:
        """The state in parts of about CHUNK_BYTES, all with the same position; with plans in the form of `teller`.

        `is_raw`: with replies as the model wrote them.
        """
        view = self.view
        run = run_pb2.Run()
        run.CopyFrom(self.run)
        run.state = view.state
        parts = [event_pb2.Snapshot(run=run)]
        size = 0

        def room(more: int) -> event_pb2.Snapshot:
            """The part for so many bytes more."""
            nonlocal size
            if size and size + more > CHUNK_BYTES:
                parts.append(event_pb2.Snapshot(part=len(parts), run=run))
                size = 0
            size += more
            return parts[-1]

        for entry in view.timeline():
            head, rest = pieces_of(entry if is_raw else entry_in_parts(entry))
            room(head.ByteSize()).entries.append(head)
            for piece in rest:
                room(piece.ByteSize()).bodies.append(piece)
        plans = teller.begin() if teller else event_pb2.Snapshot()
        for plan in plans.plans:
            room(plan.ByteSize()).plans.append(plan)
        if view.partial:
            events.add_partial(parts, view.partial.turn, view.partial.reply if is_raw else self._parts)
        last = parts[-1]
        last.last, last.state = True, view.state
        if plans.HasField("legacy_plan"):
            last.legacy_plan.CopyFrom(plans.legacy_plan)
        last.MergeFrom(event_pb2.Snapshot(draft=view.draft, draft_usage=view.draft_usage, compression=view.compression))
        last.queue.extend(view.queue)
        last.pause_reasons.extend(view.pause_reasons)
        last.proposals.extend(view.proposals.values())
        messages = [WatchRunResponse(cursor=cursor, snapshot=part) for part in parts]
        for message in messages:
            set_now(message.time)
        return messages


def draft_usage(draft: Entry) -> session_pb2.DraftUsage:
    # Whatever it says, the watch goes on.
    tokens, window = (min(max(0, draft.attributes.get(name, 0)), _UINT32_MAX) for name in (TOKENS, WINDOW_TOKENS))
    return session_pb2.DraftUsage(tokens=tokens, window_tokens=window)


def set_now(field: Timestamp) -> None:
    field.seconds, field.nanos = divmod(time.time_ns(), 1_000_000_000)

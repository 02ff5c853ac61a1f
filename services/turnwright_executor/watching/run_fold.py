"""The state of a run, folded from its events: the content of a snapshot."""

from __future__ import annotations

import time
from collections.abc import Iterable

from google.protobuf.timestamp_pb2 import Timestamp
from msgspec import Struct, field
from turnwright.executor.v1 import event_pb2, task_pb2
from turnwright.executor.v1.executor_service_pb2 import WatchRunResponse
from turnwright.types.v1 import entry_pb2, run_pb2, session_pb2

from turnwright_core.chat.reply import PartialReply
from turnwright_core.entries import State
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.runs import Run, SessionState
from turnwright_core.session import Wait, session_state
from turnwright_core.wire.command_records import wait_in
from turnwright_core.wire.entries import entry_from_pb
from turnwright_executor.ports.publishing import StreamBegan, StreamBroke, StreamEnded, StreamEvent
from turnwright_executor.watching import events, output_pieces
from turnwright_executor.watching.proposals import proposal_of


class _Partial(Struct):
    """The streaming message."""

    turn: int
    reply: PartialReply = field(default_factory=PartialReply)


class RunFold(Struct):
    """A run, the entries of its timeline by path, and the streaming message."""

    run: run_pb2.Run = field(default_factory=run_pb2.Run)
    entries: dict[str, entry_pb2.Entry] = field(default_factory=dict)
    state: SessionState = SessionState.UNSPECIFIED
    """As last published."""
    _waits: dict[str, Wait] = field(default_factory=dict)
    """What commands wait for, by path; those of the run's latest turn count."""
    _partial: _Partial | None = None

    def load(self, run: run_pb2.Run, entries: Iterable[entry_pb2.Entry]) -> None:
        """Replace the state by what the store has now; the streaming message is kept."""
        # A snapshot has the state in a field of its own, which events keep up to date.
        run.ClearField("state")
        self.run, self.entries, self._waits = run, {}, {}
        for entry in entries:
            self._keep(entry)
        self.state = self.state_now()

    def state_now(self, run: Run | run_pb2.Run | None = None) -> SessionState:
        """What the run is doing by now, told or not; `run` is its row where that is newer."""
        run = run or self.run
        prefix = f"log://turn_{run.turn}/"
        waits = {wait for path, wait in self._waits.items() if path.startswith(prefix)}
        status, reason = (run.loop.status, run.loop.reason) if run.loop else (0, "")
        return session_state(status, reason, run.loops_queued, waits)

    def fold(self, event: WatchRunResponse) -> None:
        match event.WhichOneof("event"):
            case "message_added":
                self._keep(event.message_added.entry)
            case "message_updated":
                self._keep(event.message_updated.entry)
            case "output_appended":
                path = event.output_appended.path
                if path in self.entries:
                    self.entries[path] = output_pieces.grown(self.entries[path], event.output_appended)
            case "message_removed":
                self.entries.pop(event.message_removed.path, None)
                self._waits.pop(event.message_removed.path, None)
            case "run_state":
                self.run = event.run_state.run
            case "runtime_updated":
                self.state = SessionState(event.runtime_updated.state)

    def _keep(self, entry: entry_pb2.Entry) -> None:
        self.entries[entry.path] = entry
        state = State(entry.state)
        is_open = not state.is_settled and entry.scheme == "log" and entry.writer == entry_pb2.TIER_SYSTEM
        if is_open and (wait := wait_in(state, entry.record)):
            self._waits[entry.path] = wait
        else:
            self._waits.pop(entry.path, None)
        if self._partial and entry.path == f"assistant://{self._partial.turn}":
            self._partial = None

    def stream(self, turn: int, event: StreamEvent) -> None:
        """Update the streaming message directly, because deltas are many."""
        match event:
            case StreamBegan():
                self._partial = _Partial(turn)
            case StreamBroke():
                self._partial = None
            case StreamEnded():
                pass
            case _:
                if self._partial:
                    self._partial.reply.add(event)

    def snapshot(self, cursor: task_pb2.EventCursor) -> list[WatchRunResponse]:
        """The state in parts of about CHUNK_BYTES, all with the same position."""
        parts = [event_pb2.Snapshot(run=self.run)]
        size = 0
        for entry in sorted(self.entries.values(), key=lambda entry: entry.position):
            entry_size = entry.ByteSize()
            if size and size + entry_size > CHUNK_BYTES:
                parts.append(event_pb2.Snapshot(part=len(parts), run=self.run))
                size = 0
            parts[-1].entries.append(entry)
            size += entry_size
        if self._partial:
            events.add_partial(parts, self._partial.turn, self._partial.reply)
        last = parts[-1]
        last.last = True
        last.state = session_pb2.SessionState.ValueType(int(self.state))
        proposed = (entry for entry in self.entries.values() if entry.state == entry_pb2.STATE_PROPOSED)
        last.proposals.extend(proposal_of(entry_from_pb(entry)) for entry in proposed)
        return [WatchRunResponse(cursor=cursor, time=now(), snapshot=part) for part in parts]


def now() -> Timestamp:
    seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
    return Timestamp(seconds=seconds, nanos=nanos)

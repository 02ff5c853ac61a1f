"""Event sourcing for clients: a `RunView` is the state of a run folded from its events.

Folding any prefix of a run's events gives the same view as a snapshot taken at that moment (row RE08); tests check
that. Snapshots come in parts and replace everything at the last one. Heartbeats and progress change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct, field
from turnwright.executor.v1 import event_pb2, executor_service_pb2, task_pb2
from turnwright.types.v1 import entry_pb2, plan_pb2, proposal_pb2, run_pb2, session_pb2

from turnwright_core.chat.message import Message, Role
from turnwright_core.chat.reply import PartialReply, partial_reply
from turnwright_core.limits import EVENT_BODY_BYTES_MAX
from turnwright_core.plans.receiver import HeldPlans
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

    `entries` and `proposals` are keyed by path. Bodies are truncated after 16384 bytes, as in events. `held` has the
    plans that a watch with plans was sent.
    """

    run: run_pb2.Run | None = None
    entries: dict[str, entry_pb2.Entry] = field(default_factory=dict)
    proposals: dict[str, proposal_pb2.Proposal] = field(default_factory=dict)
    partial: Partial | None = None
    held: HeldPlans[plan_pb2.Plan, list[plan_pb2.PlanItem]] = field(default_factory=HeldPlans)
    state: session_pb2.SessionState.ValueType = session_pb2.SESSION_STATE_UNSPECIFIED
    """What the run is doing."""
    cursor: task_pb2.EventCursor | None = None
    _parts: list[event_pb2.Snapshot] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Take the state from the run, where it stands in answers and not in events."""
        if self.run is not None and self.run.state:
            run = run_pb2.Run()
            run.CopyFrom(self.run)
            run.ClearField("state")
            self.state, self.run = self.run.state, run

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RunView):
            return NotImplemented
        return self._state() == other._state()

    __hash__ = None  # type: ignore[assignment] # it changes

    def _state(self) -> tuple[object, ...]:
        plans = list(self.held.plans.items()), self.held.legacy
        return self.run, self.state, self.entries, self.proposals, self.partial, plans

    def apply(self, event: Event) -> None:
        """Fold one event in. Unknown kinds of events are ignored."""
        kind = event.WhichOneof("event")
        if kind is None or kind == "heartbeat":
            return
        fold = _FOLDS.get(kind)
        if fold is not None:
            fold(self, event)
        if kind != "snapshot" or event.snapshot.last:
            self.cursor = event.cursor

    def apply_all(self, events: Iterable[Event]) -> RunView:
        """Fold events in order; returns the view itself."""
        for event in events:
            self.apply(event)
        return self

    def timeline(self) -> list[entry_pb2.Entry]:
        return sorted(self.entries.values(), key=lambda entry: entry.position)


def _snapshot(view: RunView, event: Event) -> None:
    part = event.snapshot
    if part.part == 0:
        view._parts.clear()  # noqa: SLF001 - the folds are the view's own methods, by kind
    view._parts.append(part)  # noqa: SLF001
    if part.last:
        parts = list(view._parts)  # noqa: SLF001
        view._parts.clear()  # noqa: SLF001
        _replace(view, parts)


def _replace(view: RunView, parts: list[event_pb2.Snapshot]) -> None:
    last = parts[-1]
    view.run, view.state = last.run, last.state
    view.entries = {entry.path: entry for part in parts for entry in part.entries}
    view.proposals = {proposal.path: proposal for proposal in last.proposals}
    legacy = list(last.legacy_plan.items) if last.HasField("legacy_plan") else None
    view.held.replace(((plan.plan_id, plan) for part in parts for plan in part.plans), legacy)
    view.partial = None
    if last.HasField("partial"):
        pieces = [part.partial for part in parts if part.HasField("partial")]
        contents, thoughts = [piece.content for piece in pieces], [piece.reasoning for piece in pieces]
        rest = message_from_pb(last.partial.message) if last.partial.HasField("message") else Message(Role.ASSISTANT)
        reply = partial_reply(contents, thoughts, rest, usage_from_pb(last.partial.usage))
        view.partial = Partial(last.partial.turn, reply)


def _stream_started(view: RunView, event: Event) -> None:
    view.partial = Partial(event.stream_started.turn)


def _stream_delta(view: RunView, event: Event) -> None:
    if view.partial is not None and (delta := delta_from_pb(event.stream_delta.delta)):
        view.partial.reply.add(delta)


def _stream_cancelled(view: RunView, _event: Event) -> None:
    view.partial = None


def _added(view: RunView, event: Event) -> None:
    _keep(view, event.message_added.entry)


def _updated(view: RunView, event: Event) -> None:
    _keep(view, event.message_updated.entry)


def _appended(view: RunView, event: Event) -> None:
    """Append to a body; in a view it stays truncated, as in events."""
    piece = event.output_appended
    before = view.entries.get(piece.path)
    if before is None:
        return
    after = entry_pb2.Entry()
    after.CopyFrom(before)
    if piece.text:
        data = before.body.encode()
        if len(data) == piece.offset:
            after.body = (data + piece.text.encode())[:EVENT_BODY_BYTES_MAX].decode(errors="ignore")
        after.hash = ""
    after.body_size_bytes = piece.offset + len(piece.text.encode())
    after.write_count, after.revision = piece.write_count, piece.revision
    view.entries[piece.path] = after


def _keep(view: RunView, entry: entry_pb2.Entry) -> None:
    """Replace a partial message by the entry of the reply. Until that entry comes, the partial text stays visible."""
    view.entries[entry.path] = entry
    if view.partial is not None and entry.path == f"assistant://{view.partial.turn}":
        view.partial = None


def _removed(view: RunView, event: Event) -> None:
    view.entries.pop(event.message_removed.path, None)
    view.proposals.pop(event.message_removed.path, None)


def _pending(view: RunView, event: Event) -> None:
    proposal = event.proposal_pending.proposal
    view.proposals[proposal.path] = proposal


def _decided(view: RunView, event: Event) -> None:
    view.proposals.pop(event.proposal_resolved.path, None)


def _run_state(view: RunView, event: Event) -> None:
    view.run = event.run_state.run


def _runtime_updated(view: RunView, event: Event) -> None:
    view.state = event.runtime_updated.state


def _plan_updated(view: RunView, event: Event) -> None:
    plan = event.plan_updated.plan
    view.held.update(plan.plan_id, plan)


def _plan_removed(view: RunView, event: Event) -> None:
    view.held.remove(event.plan_removed.plan_id)


def _legacy_plan(view: RunView, event: Event) -> None:
    view.held.legacy = list(event.legacy_plan.items)


_FOLDS: Final[Mapping[str, Callable[[RunView, Event], None]]] = {
    "snapshot": _snapshot,
    "stream_started": _stream_started,
    "stream_delta": _stream_delta,
    "stream_cancelled": _stream_cancelled,
    "message_added": _added,
    "message_updated": _updated,
    "output_appended": _appended,
    "message_removed": _removed,
    "proposal_pending": _pending,
    "proposal_resolved": _decided,
    "run_state": _run_state,
    "runtime_updated": _runtime_updated,
    "plan_updated": _plan_updated,
    "plan_removed": _plan_removed,
    "legacy_plan": _legacy_plan,
}
"""The fold of each kind of event; turns, stream ends, progress and heartbeats change nothing."""

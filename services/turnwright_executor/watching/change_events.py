"""What the changes of a run come to as events, in the order in which watchers are told.

One write can end a turn and open the next one: what belongs to the first comes before the second, then what the session
is, and the run last, which tells that all has come. The draft, the queue and the settings are told as a whole, each
only if it has changed; where none has, that costs comparisons and no call.
Source: architecture 7; rows RE01, RE05-RE07, RS09, RU242-RU248; decision C50.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final, Protocol

from turnwright.executor.v1 import event_pb2, session_event_pb2
from turnwright.executor.v1.executor_service_pb2 import WatchRunResponse
from turnwright.types.v1 import entry_pb2, run_pb2, session_pb2
from turnwright_values.store import WatchChangesResponse
from turnwright_values.types import Entry, Loop, SessionState, State, Turn

from turnwright_core.events import is_rewind
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.session import DRAFT, EDIT_SCHEME
from turnwright_core.streams import PRODUCER, record_of_channel
from turnwright_core.wire.entries import entry_to_pb
from turnwright_core.wire.proposals import is_of_agents, proposal_to_pb
from turnwright_core.wire.runs import loop_to_pb, run_to_pb
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.ports.publishing import StreamBroke
from turnwright_executor.watching import events
from turnwright_executor.watching.plans import ReadPart, read_plan
from turnwright_executor.watching.replies import entry_in_parts
from turnwright_executor.watching.run_fold import SESSION_SCHEMES, RunFold, draft_usage

# Growing bodies as events: only the appended piece is sent, never the whole body again.
#
# The change feed has the beginning of a body and its length. What was appended since the last event is taken from that
# beginning if the body is short, else it is read from the store. A rewritten body has another beginning, so it does not
# count as growth.
# Source: architecture 3 (a change carries the byte length), 7, 12.4; rows RU174, RU245.

ABORTED: Final = "aborted:499"


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


def output_first(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The entries with channels before their record: what was run quickly has all of them at once."""
    channels: dict[str, list[Entry]] = {entry.path: [] for entry in entries}
    for entry in entries:
        if (place := record_of_channel(entry.path)) and place[0] in channels:
            channels[place[0]].append(entry)
    moved = {entry.path for those in channels.values() for entry in those}
    for entry in entries:
        if entry.path not in moved:
            yield from channels[entry.path]
            yield entry


async def appended_messages(
    before: entry_pb2.Entry, entry: Entry, read_body: ReadPart
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


class Append(Protocol):
    """Numbers an event and keeps it for the watchers; `in_parts`: what they are sent who read replies in parts."""

    def __call__(self, event: WatchRunResponse, in_parts: WatchRunResponse | None = None) -> None: ...


class ChangeEvents:
    """Folds the events of one run and passes them on."""

    def __init__(self, address: RunAddress, ledger: Ledger, known: RunFold, append: Append) -> None:
        self._address = address
        self._ledger = ledger
        self._known = known
        self._append = append
        self._removed: list[str] = []
        """Paths that are gone, as far as the messages of a round of the feed have told."""
        self._is_rewound = False
        """Whether the round has told why: the run was rewound."""

    def begin(self) -> None:
        """Forget a round that did not come to its end: it will be told anew."""
        self._removed, self._is_rewound = [], False

    async def publish(self, changes: WatchChangesResponse, *, ends_round: bool) -> None:
        """Publish a message of the feed. Raises TurnwrightError."""
        known = self._known
        for plan in changes.plans:
            known.plans.known[plan.plan_id] = await read_plan(plan, self.read_body)
        ended = max([turn.number for turn in changes.turns if turn.result], default=0)
        entries = [entry for entry in changes.entries if entry.scheme not in SESSION_SCHEMES]
        run = run_to_pb(changes.run) if changes.run else None
        self._publish_removed(changes, ends_round=ends_round)
        if ended:
            await self._publish_entries([entry for entry in entries if entry.turn <= ended])
            entries = [entry for entry in entries if entry.turn > ended]
            self._publish_broken_stream(changes.turns, ended)
        for turn in sorted(changes.turns, key=lambda turn: turn.number):
            self._publish(events.turn_moved(turn))
            known.take_turns([turn])
        await self._publish_entries(entries)
        await self._publish_session(changes, run)
        self.publish_runtime(known.state_now(run))
        if (reasons := known.reasons_now((run or known.run).turn)) != known.view.pause_reasons:
            self._publish(WatchRunResponse(pause_required=session_event_pb2.PauseRequired(reasons=reasons)))
        if run:
            self._publish_run(run, changes.loops)

    def publish_runtime(self, state: SessionState) -> None:
        """Publish what the run is doing, if that has changed."""
        compression = self._known.compression_now()
        if state is not self._known.state or compression != self._known.view.compression:
            number = session_pb2.SessionState.ValueType(int(state))
            update = event_pb2.RuntimeUpdated(state=number, compression=compression)
            self._publish(WatchRunResponse(runtime_updated=update))

    def _publish(self, event: WatchRunResponse) -> None:
        self._known.view.apply(event)
        self._append(event)

    def _publish_broken_stream(self, turns: Iterable[Turn], ended: int) -> None:
        """End a streaming message whose turn has ended without storing any of it: nothing else would."""
        partial = self._known.view.partial
        if partial and partial.turn <= ended:
            results = (turn.result for turn in turns if turn.number == partial.turn and turn.result)
            reason = next((result.error or f"{result.reason}:{result.status}" for result in results), "")
            self._publish(events.stream_moved(partial.turn, StreamBroke(reason)))

    def _publish_removed(self, changes: WatchChangesResponse, *, ends_round: bool) -> None:
        """Publish what is gone at the end of a round, because only then it is known whether it was a rewind."""
        self._removed += changes.removed_paths
        self._is_rewound |= any(is_rewind(entry) and entry.path not in self._known.entries for entry in changes.entries)
        if not (ends_round and self._removed):
            return
        gone = [path for path in self._removed if path in self._known.entries]
        if self._is_rewound and gone:
            gone.sort(key=lambda path: self._known.entries[path].position)
            for event in events.messages_truncated(self._known.place_of(gone), gone):
                self._publish(event)
        else:
            for path in gone:
                self._publish(WatchRunResponse(message_removed=event_pb2.MessageRemoved(path=path)))
        for path in gone:
            self._known.forget(path)
        self.begin()

    async def _publish_entries(self, entries: Sequence[Entry]) -> None:
        for entry in output_first(entries):
            before = self._known.entries.get(entry.path)
            if before and before.revision >= entry.revision:
                continue
            is_all = False
            if before and has_grown(before, entry):
                is_all = is_growth_only(before, entry)
                if is_all or entry.body_size_bytes > before.body_size_bytes:
                    async for piece in appended_messages(before, entry, self.read_body):
                        self._publish(WatchRunResponse(output_appended=piece))
            if not is_all:
                self._publish_entry(before, entry)

    def _publish_entry(self, before: entry_pb2.Entry | None, entry: Entry) -> None:
        message, is_new = entry_to_pb(entry), before is None
        if is_new and entry.state.is_settled and message.record.HasField("ordinal"):
            # Nothing of it stays: the same entry follows as it has ended.
            self._append(events.command_recorded(message))
            is_new = False
        self._publish_whole(message, is_new=is_new)
        if (cancelled := cancellation(entry)) and (before is None or not State(before.state).is_settled):
            self._append(WatchRunResponse(output_cancelled=cancelled))
        was_pending = before is not None and before.state == entry_pb2.STATE_PROPOSED
        if is_of_agents(message) or (before is not None and is_of_agents(before)):
            # Nobody decides on it.
            return
        if entry.state is State.PROPOSED and not was_pending:
            self._publish(WatchRunResponse(proposal_pending=event_pb2.ProposalPending(proposal=proposal_to_pb(entry))))
        elif was_pending and entry.state is not State.PROPOSED:
            self._publish(events.proposal_resolved(entry))

    def _publish_whole(self, entry: entry_pb2.Entry, *, is_new: bool) -> None:
        """Publish an entry; the rest of a long message follows in pieces (C50)."""
        raw, shown = events.whole_entry(entry, is_new=is_new), entry_in_parts(entry)
        self._known.view.apply(raw[0])
        if len(raw) > 1:
            # Folding each piece would copy the message as many times as it has pieces.
            self._known.view.entries[entry.path] = entry
        in_parts = repeat(None) if shown is entry else events.whole_entry(shown, is_new=is_new, count=len(raw))
        for event, part in zip(raw, in_parts, strict=False):
            self._append(event, part)
        self._known.note(entry)

    async def read_body(self, path: str, offset: int, bytes_max: int) -> str:
        return await self._ledger.read_body(self._address, path, offset, bytes_max)

    async def _publish_session(self, changes: WatchChangesResponse, run: run_pb2.Run | None) -> None:
        """Publish settings, draft and queue."""
        known = self._known
        if run and run.settings != known.run.settings:
            self._publish(WatchRunResponse(thread_updated=session_event_pb2.ThreadUpdated(settings=run.settings)))
        drafts = [(entry.body, draft_usage(entry)) for entry in changes.entries if entry.path == DRAFT]
        for draft in (*drafts, (None, None)) if DRAFT in changes.removed_paths else drafts:
            if draft != (known.view.draft, known.view.draft_usage):
                update = session_event_pb2.DraftUpdated(text=draft[0], usage=draft[1])
                self._publish(WatchRunResponse(draft_updated=update))
        known.take_loops(changes.loops)
        for entry in changes.entries:
            if entry.scheme == EDIT_SCHEME:
                known.take_edit(entry)
        is_unknown = known.leaves_unknown_loop(changes.removed_paths)
        listed = await self._ledger.list_commands(self._address) if is_unknown else ()
        known.drop_edits(changes.removed_paths)
        if is_unknown:
            known.take_queue(listed)
        if (queue := known.queue_now()) != known.view.queue:
            self._publish(WatchRunResponse(queue_updated=session_event_pb2.QueueUpdated(commands=queue)))

    def _publish_run(self, run: run_pb2.Run, loops: Sequence[Loop]) -> None:
        """Publish the run with each other loop that changed, then with the active or latest one."""
        run.state = self._known.view.state
        for loop in loops:
            if event := events.budget_exhausted(loop):
                self._publish(event)
            if loop.sequence != run.loop.sequence:
                self._publish(WatchRunResponse(run_state=event_pb2.RunState(run=run, loop=loop_to_pb(loop))))
        latest = run.loop if run.HasField("loop") else None
        self._publish(WatchRunResponse(run_state=event_pb2.RunState(run=run, loop=latest)))

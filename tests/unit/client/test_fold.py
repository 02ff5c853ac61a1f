"""Folding events: any prefix of a run's events gives the state that a snapshot of that moment gives (row RE08)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from turnwright.executor.v1 import event_pb2, executor_service_pb2
from turnwright.types.v1 import (
    cursor_pb2,
    delta_pb2,
    entry_pb2,
    heartbeat_pb2,
    loop_pb2,
    proposal_pb2,
    run_pb2,
    usage_pb2,
)
from turnwright_values.replies import ServerBlock, ThinkingBlock, ToolCall
from turnwright_values.types import Usage

from turnwright_client import RunView
from turnwright_core.chat.deltas import (
    AddCitation,
    AddServerBlock,
    AppendContent,
    AppendReasoning,
    Delta,
    MergeExtra,
    SetThinkingBlocks,
    SetToolCalls,
    SetUsage,
)
from turnwright_core.chat.reply import PartialReply
from turnwright_core.limits import STOCK_MESSAGE_BYTES_MAX
from turnwright_core.wire.deltas import delta_to_pb
from turnwright_executor.watching.events import add_partial

Event = executor_service_pb2.WatchRunResponse
DELTAS: list[Delta] = [
    AppendContent("so"),
    AppendReasoning("because"),
    SetToolCalls((ToolCall("get", '{"path": "a"', id="c1"), ToolCall("sh", "", 1, signature="s", block=3))),
    SetThinkingBlocks((ThinkingBlock("thinking", 0, text="because", signature="sig"),)),
    SetThinkingBlocks((ThinkingBlock("thinking", 0, signature="newer"), ThinkingBlock("redacted_thinking", data="x"))),
    AddCitation('{"url": "https://example.org"}'),
    AddServerBlock(ServerBlock(2, '{"type": "web_search_tool_result"}')),
    SetUsage(Usage(prompt_tokens=7, total_tokens=7, cost_usd=0.5)),
    MergeExtra('{"id": "m1", "role": "system"}'),
]
PATHS = [f"log://turn_1/sh/{n}" for n in range(4)]


@dataclass
class Executor:
    """A run as its owner knows it: what a snapshot would hold, kept apart from the events."""

    run: run_pb2.Run = field(default_factory=run_pb2.Run)
    entries: dict[str, entry_pb2.Entry] = field(default_factory=dict)
    proposals: dict[str, proposal_pb2.Proposal] = field(default_factory=dict)
    partial: PartialReply | None = None
    turn: int = 0
    seq: int = 0

    def event(self, **what) -> Event:
        self.seq += 1
        return Event(cursor=cursor_pb2.EventCursor(epoch="e", seq=self.seq), **what)

    def snapshot(self, part_entries: int) -> list[Event]:
        ordered = sorted(self.entries.values(), key=lambda entry: entry.position)
        groups = [ordered[i : i + part_entries] for i in range(0, len(ordered), part_entries)] or [[]]
        parts = [event_pb2.Snapshot(part=i, run=self.run, entries=group) for i, group in enumerate(groups)]
        if self.partial is not None:
            add_partial(parts, self.turn, self.partial)
        parts[-1].last = True
        parts[-1].proposals.extend(self.proposals.values())
        cursor = cursor_pb2.EventCursor(epoch="e", seq=self.seq)
        return [Event(cursor=cursor, snapshot=part) for part in parts]


def step(  # noqa: C901 - one case for each kind of event
    executor: Executor, choice: int, number: int
) -> Iterator[Event]:
    """One thing that happens, told as events and kept as state."""
    path = PATHS[number % len(PATHS)]
    match choice:
        case 0:
            known = path in executor.entries
            entry = entry_pb2.Entry(path=path, position=number % len(PATHS), body=str(number))
            executor.entries[path] = entry
            kind = "message_updated" if known else "message_added"
            message = event_pb2.MessageUpdated(entry=entry) if known else event_pb2.MessageAdded(entry=entry)
            yield executor.event(**{kind: message})
        case 1:
            executor.entries.pop(path, None)
            executor.proposals.pop(path, None)
            yield executor.event(message_removed=event_pb2.MessageRemoved(path=path))
        case 2:
            executor.proposals[path] = proposal_pb2.Proposal(path=path, turn=number)
            yield executor.event(proposal_pending=event_pb2.ProposalPending(proposal=executor.proposals[path]))
        case 3:
            executor.proposals.pop(path, None)
            yield executor.event(proposal_resolved=event_pb2.ProposalResolved(decision={"path": path}))
        case 4:
            executor.run = run_pb2.Run(run="r", status=102, turn=number)
            loop = loop_pb2.Loop(sequence=number)
            yield executor.event(run_state=event_pb2.RunState(run=executor.run, loop=loop))
        case 5:
            executor.turn, executor.partial = number, PartialReply()
            yield executor.event(stream_started=event_pb2.StreamStarted(turn=number))
        case 6 if executor.partial is not None:
            delta = DELTAS[number % len(DELTAS)]
            executor.partial.add(delta)
            yield executor.event(stream_delta=event_pb2.StreamDelta(turn=executor.turn, deltas=[delta_to_pb(delta)]))
        case 7 if executor.partial is not None:
            reply = entry_pb2.Entry(path=f"assistant://{executor.turn}", position=100 + executor.turn)
            executor.entries[reply.path] = reply
            executor.partial = None
            yield executor.event(stream_finished=event_pb2.StreamFinished(turn=executor.turn))
            yield executor.event(message_added=event_pb2.MessageAdded(entry=reply))
        case 8:
            executor.partial = None
            yield executor.event(stream_cancelled=event_pb2.StreamCancelled(turn=executor.turn))
        case 9:
            yield Event(cursor=cursor_pb2.EventCursor(epoch="e", seq=executor.seq), heartbeat=heartbeat_pb2.Heartbeat())
        case _:
            yield executor.event(run_progress=event_pb2.RunProgress(detail="x"))


STEPS = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 9)), max_size=40)


@given(before=STEPS, after=STEPS, part_entries=st.integers(1, 4))
def test_folding_a_prefix_equals_a_snapshot_taken_there(before, after, part_entries) -> None:
    executor = Executor()
    follower, latecomer = RunView(run=run_pb2.Run()), RunView()
    for choice, number in before:
        follower.apply_all(step(executor, choice, number))

    latecomer.apply_all(executor.snapshot(part_entries))
    assert latecomer == follower
    for choice, number in after:
        events = list(step(executor, choice, number))
        follower.apply_all(events)
        latecomer.apply_all(events)

    assert latecomer == follower
    assert follower.timeline() == sorted(executor.entries.values(), key=lambda entry: entry.position)
    assert latecomer.cursor == cursor_pb2.EventCursor(epoch="e", seq=executor.seq)


@given(cuts=st.lists(st.integers(0, 20), max_size=6))
def test_any_split_of_a_stream_folds_to_the_same_message(cuts) -> None:
    text, executor = "The discount begins.", Executor()
    edges = sorted({0, len(text), *(cut for cut in cuts if cut <= len(text))})
    view = RunView().apply_all(step(executor, 5, 3))

    for begin, end in pairwise(edges):
        delta = delta_pb2.Delta(append_content=text[begin:end])
        view.apply(executor.event(stream_delta=event_pb2.StreamDelta(turn=3, deltas=[delta])))

    assert view.partial is not None
    assert (view.partial.turn, view.partial.content, view.partial.reasoning) == (3, text, "")


def test_a_snapshot_replaces_nothing_before_its_last_part() -> None:
    executor = Executor()
    view = RunView(run=run_pb2.Run()).apply_all(step(executor, 0, 1))
    before = dict(view.entries)
    later = Executor(entries={path: entry_pb2.Entry(path=path, position=n) for n, path in enumerate(PATHS[2:])}, seq=9)
    parts = later.snapshot(1)

    view.apply(parts[0])

    assert (view.entries, view.cursor.seq) == (before, 1)
    view.apply(parts[1])
    assert (set(view.entries), view.cursor.seq) == (set(PATHS[2:]), 9)


def test_a_snapshot_that_begins_again_forgets_its_first_parts() -> None:
    broken = Executor(entries={path: entry_pb2.Entry(path=path) for path in PATHS}).snapshot(1)
    whole = Executor(entries={PATHS[0]: entry_pb2.Entry(path=PATHS[0])}).snapshot(1)

    view = RunView().apply_all([*broken[:3], *whole])

    assert set(view.entries) == {PATHS[0]}


def test_reasoning_is_kept_apart_and_usage_is_no_text() -> None:
    executor = Executor()
    view = RunView().apply_all(step(executor, 5, 1))
    deltas = [
        delta_pb2.Delta(append_reasoning="because"),
        delta_pb2.Delta(set_usage=usage_pb2.Usage(prompt_tokens=3)),
        delta_pb2.Delta(append_content="so"),
    ]

    view.apply_all(executor.event(stream_delta=event_pb2.StreamDelta(turn=1, deltas=[delta])) for delta in deltas)

    assert (view.partial.content, view.partial.reasoning) == ("so", "because")


def test_a_long_partial_message_comes_in_pieces_that_any_client_takes_and_is_one_again() -> None:
    content, reasoning = "😀ä" * 500_000, "x" * 700_000
    parts = [event_pb2.Snapshot(run=run_pb2.Run(run="r"))]
    add_partial(parts, 3, PartialReply([content], [reasoning]))
    parts[-1].last = True
    view = RunView().apply_all(executor_service_pb2.WatchRunResponse(snapshot=part) for part in parts)
    assert view.partial is not None
    assert (view.partial.turn, view.partial.content, view.partial.reasoning) == (3, content, reasoning)
    assert max(part.ByteSize() for part in parts) < STOCK_MESSAGE_BYTES_MAX
    assert [part.part for part in parts] == list(range(len(parts)))

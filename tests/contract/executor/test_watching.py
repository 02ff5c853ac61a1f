"""WatchRun: numbered events, snapshots, coming back. Rows RE02, RE03, RE05, RE08; architecture 7."""

from __future__ import annotations

import contextlib

import pytest
from turnwright.types.v1 import entry_pb2

from services import running
from turnwright_client import RunView

pytestmark = pytest.mark.asyncio

TURNS = [
    '<get path="a.txt"/><set path="known://one">1</set><update status="102">One.</update>',
    '<set path="a.txt"><<REPLACE\nnew\nREPLACE</set><sh>cat a.txt</sh><update status="102">Two.</update>',
    '<update status="200">Three.</update>',
]


def seqs(events) -> list[int]:
    return [event.cursor.seq for event in events if event.WhichOneof("event") not in ("snapshot", "heartbeat")]


async def snapshot(services) -> RunView:
    view = RunView()
    async with contextlib.aclosing(services.client.watch(services.project, "r")) as events:
        async for event in events:
            view.apply(event)
            if event.snapshot.last:
                break
    return view


async def test_every_event_of_a_run_comes_once_in_order_without_holes(services) -> None:
    services.script(*TURNS)
    await services.until(await services.act())
    numbers = seqs(services.events)
    assert numbers == list(range(1, len(numbers) + 1))
    assert len({event.cursor.epoch for event in services.events}) == 1


async def test_a_snapshot_stands_at_the_latest_event_and_the_next_one_follows_it(services) -> None:
    """RE02."""
    services.script('<set path="a.txt">new</set><update status="200">Done.</update>')
    queued = await services.act(yolo=False)
    await services.until(queued, 202)
    latest = seqs(services.events)[-1]
    async with contextlib.aclosing(services.client.watch(services.project, "r")) as events:
        shown = [await anext(events)]
        while not shown[-1].snapshot.last:
            shown.append(await anext(events))
        await services.client.resolve(services.project, "r", "log://turn_1/set/a.txt", accept=True)
        after = []
        while len(after) < 3:
            after += seqs([await anext(events)])
    assert {event.cursor.seq for event in shown if event.snapshot.last} == {latest}
    assert after == [latest + 1, latest + 2, latest + 3]


async def test_a_turn_is_reported_in_the_order_of_its_steps(services) -> None:
    services.script(TURNS[-1])
    await services.until(await services.act())
    told = [event.WhichOneof("event") for event in services.events]
    order = ["turn_started", "stream_started", "stream_delta", "stream_finished", "message_added", "turn_finished"]
    places = [told.index(name) for name in order[:4]]
    places.append(
        next(i for i, event in enumerate(services.events) if event.message_added.entry.path == "assistant://1")
    )
    places.append(told.index("turn_finished"))
    assert places == sorted(places)
    assert told[-1] == "run_state"


async def test_a_turn_is_reported_to_its_end_before_the_next_one_begins(services) -> None:
    """One write ends the one and begins the other."""
    services.script(*TURNS)
    await services.until(await services.act())
    told = [told for told in map(turn_step, services.events) if told]
    assert told == [
        ("turn_started", 1),
        ("settled", 1),
        ("settled", 1),
        ("settled", 1),
        ("turn_finished", 1),
        ("turn_started", 2),
        ("settled", 2),
        ("settled", 2),
        ("settled", 2),
        ("turn_finished", 2),
        ("turn_started", 3),
        ("settled", 3),
        ("turn_finished", 3),
    ]


def turn_step(event) -> tuple[str, int] | None:
    """A turn that begins or ends, or a command of it that is done; None for anything else."""
    name = event.WhichOneof("event")
    if name in ("turn_started", "turn_finished"):
        return name, getattr(event, name).turn.number
    entry = event.message_updated.entry
    is_done = entry.scheme == "log" and entry.state == entry_pb2.STATE_RESOLVED
    return ("settled", entry.turn) if is_done else None


async def test_folding_all_events_gives_what_a_snapshot_shows(services) -> None:
    services.script(*TURNS)
    await services.until(await services.act())
    folded, shown = services.view(), await snapshot(services)
    assert folded.entries == shown.entries
    assert (folded.run.status, folded.run.loop.status) == (shown.run.status, shown.run.loop.status) == (200, 200)
    assert folded.proposals == shown.proposals == {}


async def test_folding_to_a_proposal_gives_what_a_snapshot_shows_there(services) -> None:
    services.script(*TURNS[1:])
    await services.until(await services.act(yolo=False), 202)
    folded, shown = services.view(), await snapshot(services)
    assert folded.proposals == shown.proposals
    assert list(shown.proposals) == ["log://turn_1/set/a.txt"]
    assert folded.entries == shown.entries


async def test_a_watcher_that_comes_back_misses_nothing_and_gets_no_snapshot(services) -> None:
    services.script(*TURNS)
    queued = await services.act()
    await services.until(queued)
    middle = services.events[len(services.events) // 2]
    rest = []
    async with contextlib.aclosing(services.client.watch(services.project, "r", middle.cursor)) as events:
        async for event in events:
            rest.append(event)
            if event.cursor.seq == services.events[-1].cursor.seq:
                break
    assert seqs(rest) == list(range(middle.cursor.seq + 1, services.events[-1].cursor.seq + 1))


async def test_a_cursor_of_another_time_gets_a_snapshot(services) -> None:
    services.script(*TURNS)
    queued = await services.act()
    await services.until(queued)
    stale = services.events[2].cursor
    stale.epoch = "another"
    async with contextlib.aclosing(services.client.watch(services.project, "r", stale)) as events:
        first = await anext(events)
    assert first.WhichOneof("event") == "snapshot"


async def test_a_watcher_that_fell_out_of_the_tail_gets_a_snapshot_in_band(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, tail_events=16) as services:
        (services.files / "a.txt").write_text("old\n")
        services.script(*TURNS)
        queued = await services.act()
        loop = await services.client.wait_loop(services.project, "r", queued.sequence)
        assert loop.status == 200
        async with contextlib.aclosing(services.client.watch(services.project, "r", queued.cursor)) as events:
            first = await anext(events)
        assert first.WhichOneof("event") == "snapshot"
        assert first.snapshot.run.status == 200


async def test_a_silent_run_sends_heartbeats_that_raise_no_number(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, event_heartbeat_s=0.05) as services:
        services.script(TURNS[-1])
        await services.until(await services.act())
        seen = []
        async with contextlib.aclosing(services.client.watch(services.project, "r")) as events:
            async for event in events:
                seen.append((event.WhichOneof("event"), event.cursor.seq))
                if [kind for kind, _ in seen[-2:]] == ["heartbeat"] * 2:
                    break
    assert seen[0][0] == "snapshot"
    assert len({seq for _, seq in seen[-3:]}) == 1

"""A watch reconnects, resumes after the last whole thing it gave, and gives up after a bounded number of tries."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from turnwright.executor.v1 import event_pb2, executor_service_pb2
from turnwright.types.v1 import cursor_pb2, heartbeat_pb2

from turnwright_client.watch import WatchPolicy, watch_events
from turnwright_core.errors import Reason, TurnwrightError, fault

Event = executor_service_pb2.WatchRunResponse
QUICK = WatchPolicy(retries_max=2, backoff_s=0.001, backoff_s_max=0.002, silence_s_max=5)


def state(seq: int) -> Event:
    return Event(cursor=cursor_pb2.EventCursor(epoch="e", seq=seq), run_state=event_pb2.RunState())


def at(seq: int) -> cursor_pb2.EventCursor:
    return cursor_pb2.EventCursor(epoch="e", seq=seq)


def part(seq: int, *, last: bool) -> Event:
    return Event(cursor=cursor_pb2.EventCursor(epoch="e", seq=seq), snapshot=event_pb2.Snapshot(last=last))


class Connections:
    """A server that plays one list for each connection: events, then an error, an end, or silence."""

    def __init__(self, *plays) -> None:
        self.plays = list(plays)
        self.asked: list[int | None] = []

    def open(self, cursor):
        return contextlib.aclosing(self._play(cursor))

    async def _play(self, cursor):
        self.asked.append(cursor.seq if cursor else None)
        for item in self.plays.pop(0) if self.plays else [fault(Reason.SERVICE_UNAVAILABLE, "gone")]:
            if isinstance(item, TurnwrightError):
                raise item
            if item == "silence":
                await asyncio.sleep(60)
            yield item


async def seen(server: Connections, policy: WatchPolicy = QUICK, after=None, limit: int = 100) -> list[int]:
    """The numbers of the events that a watch gave before it gave up."""
    numbers: list[int] = []
    async with contextlib.aclosing(watch_events(server.open, after, policy)) as events:
        with contextlib.suppress(TurnwrightError):
            async for event in events:
                numbers.append(event.cursor.seq)
                if len(numbers) == limit:
                    break
    return numbers


LOST = fault(Reason.SERVICE_UNAVAILABLE, "the connection dropped")


@pytest.mark.asyncio
async def test_a_dropped_connection_is_resumed_after_the_last_event() -> None:
    server = Connections([state(4), state(5), LOST], [state(6)])

    assert await seen(server, after=cursor_pb2.EventCursor(epoch="e", seq=3), limit=3) == [4, 5, 6]
    assert server.asked == [3, 5]


@pytest.mark.asyncio
async def test_an_end_of_the_stream_is_resumed_as_well() -> None:
    server = Connections([state(1)], [state(2)])

    assert await seen(server, after=at(0), limit=2) == [1, 2]
    assert server.asked == [0, 1]


@pytest.mark.asyncio
async def test_half_a_snapshot_is_no_place_to_resume_from() -> None:
    server = Connections([state(2), part(9, last=False), LOST], [part(9, last=True), LOST], [state(10)])

    assert await seen(server, after=at(1), limit=4) == [2, 9, 9, 10]
    assert server.asked == [1, 2, 9]


@pytest.mark.asyncio
async def test_a_heartbeat_between_parts_of_a_snapshot_moves_nothing() -> None:
    heartbeat = Event(cursor=cursor_pb2.EventCursor(epoch="e", seq=9), heartbeat=heartbeat_pb2.Heartbeat())
    server = Connections([part(9, last=False), heartbeat, LOST], [part(9, last=True)])

    await seen(server, limit=3)

    assert server.asked == [None, None]


@pytest.mark.asyncio
async def test_an_event_before_any_snapshot_is_not_told() -> None:
    # RE03
    server = Connections([state(5)], [part(9, last=True), state(10)])

    assert await seen(server, limit=2) == [9, 10]
    assert server.asked == [None, None]


@pytest.mark.asyncio
async def test_tries_in_a_row_without_an_event_are_bounded() -> None:
    server, lost = Connections(), []

    with pytest.raises(TurnwrightError, match="gone"):
        await anext(watch_events(server.open, None, QUICK, lost.append))

    assert len(server.asked) == QUICK.retries_max + 1
    assert [error.message for error in lost] == ["gone"] * (QUICK.retries_max - 1)


@pytest.mark.asyncio
async def test_an_event_ends_the_count_of_tries() -> None:
    server = Connections(*([state(n), LOST] for n in range(1, 8)))

    assert await seen(server, after=at(0)) == list(range(1, 8))


@pytest.mark.asyncio
async def test_silence_without_heartbeats_counts_as_a_lost_connection() -> None:
    policy = WatchPolicy(retries_max=1, backoff_s=0.001, backoff_s_max=0.001, silence_s_max=0.05)
    server = Connections([state(1), "silence"], [state(2)])

    assert await seen(server, policy, after=at(0), limit=2) == [1, 2]


@pytest.mark.asyncio
async def test_a_foreign_cursor_leads_to_a_snapshot() -> None:
    server = Connections([fault(Reason.CURSOR_FOREIGN, "another store")], [part(1, last=True)])

    assert await seen(server, after=cursor_pb2.EventCursor(epoch="old", seq=8), limit=1) == [1]
    assert server.asked == [8, None]


@pytest.mark.asyncio
async def test_an_error_that_no_reconnect_cures_is_raised_at_once() -> None:
    server = Connections([fault(Reason.RUN_NOT_FOUND, "no such run")])

    with pytest.raises(TurnwrightError) as caught:
        await anext(watch_events(server.open, None, QUICK))

    assert (caught.value.reason, server.asked) == (Reason.RUN_NOT_FOUND, [None])


def test_the_pause_doubles_up_to_its_bound() -> None:
    policy = WatchPolicy(backoff_s=0.1, backoff_s_max=1.0)

    assert [policy.pause_s(n) for n in (1, 2, 3, 4, 5, 1000)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]

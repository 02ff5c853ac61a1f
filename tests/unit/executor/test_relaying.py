"""A relay by itself: what those get who keep pace, those who do not, and all of them when the owner's stream ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import pytest
from turnwright.executor.v1.event_pb2 import Notice, Snapshot
from turnwright.executor.v1.executor_service_pb2 import WatchRunResponse
from turnwright.types.v1.cursor_pb2 import EventCursor
from turnwright.types.v1.heartbeat_pb2 import Heartbeat

from log_lines import logged
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.peers.relaying import Relay, Relays
from turnwright_executor.watching.tail import FellBehindError, TailBounds

pytestmark = pytest.mark.asyncio

KEY = (RunAddress("p", "r"), "there:1")
KEPT = 16


def at(seq: int, epoch: str = "e") -> EventCursor:
    return EventCursor(epoch=epoch, seq=seq)


def event(seq: int, epoch: str = "e", **kind) -> WatchRunResponse:
    return WatchRunResponse(cursor=at(seq, epoch), **(kind or {"notice": Notice(text=str(seq))}))


class Owner:
    """An owner's stream, told what to send; `opened` are the cursors that it was asked for."""

    def __init__(self) -> None:
        self.opened: list[EventCursor] = []
        self.closed = 0
        self._sent: asyncio.Queue[WatchRunResponse | Exception | None] = asyncio.Queue()

    def send(self, *sent: WatchRunResponse | Exception | None) -> None:
        for one in sent:
            self._sent.put_nowait(one)

    async def upstream(self, after: EventCursor):
        self.opened.append(after)
        try:
            while sent := await self._sent.get():
                if isinstance(sent, Exception):
                    raise sent
                yield sent
        finally:
            self.closed += 1


def relayed(owner: Owner, after: int = 0, relays: Relays | None = None):
    """The relay for who has everything up to a number."""
    return (relays or Relays(TailBounds(KEPT, 1_000_000))).find(KEY, at(after), owner.upstream)


def following(relay: Relay, after: int):
    """A watcher's events after a number; it leaves at the end of the block."""
    return contextlib.aclosing(relay.follow(at(after)))


async def taken(events, count: int) -> list[int]:
    """The numbers of the next events."""
    return [(await asyncio.wait_for(anext(events), 60)).cursor.seq for _ in range(count)]


async def test_each_watcher_goes_on_from_its_own_place() -> None:
    owner = Owner()
    relay = relayed(owner)
    owner.send(*map(event, range(1, 6)))
    async with following(relay, 0) as first, following(relay, 3) as second:
        assert await taken(first, 5) == [1, 2, 3, 4, 5]
        assert await taken(second, 2) == [4, 5]
    assert owner.opened == [at(0)]


async def test_a_watchers_position_moves_with_what_it_is_sent() -> None:
    owner, position = Owner(), at(0)
    owner.send(*map(event, range(1, 4)), None)
    assert [one.cursor.seq async for one in relayed(owner).follow(position)] == [1, 2, 3]
    assert position == at(3)


async def test_who_is_ahead_of_the_relay_hears_nothing_twice() -> None:
    owner = Owner()
    async with following(relayed(owner), 3) as ahead:
        waiting = asyncio.ensure_future(taken(ahead, 2))
        for seq in range(1, 6):
            owner.send(event(seq))
            await asyncio.sleep(0)
        assert await waiting == [4, 5]


async def test_a_slow_watcher_falls_behind_and_holds_up_nobody() -> None:
    owner = Owner()
    relay = relayed(owner)
    async with following(relay, 0) as slow, following(relay, 0) as quick:
        owner.send(event(1))
        assert await taken(slow, 1) == await taken(quick, 1) == [1]
        for seq in range(2, KEPT + 10):
            owner.send(event(seq))
            assert await taken(quick, 1) == [seq]
        with pytest.raises(FellBehindError):
            await taken(slow, 1)
        assert not relay.covers(at(1))
        assert relay.covers(at(KEPT))


@pytest.mark.parametrize("sent", [event(7, snapshot=Snapshot(last=True)), event(2, epoch="later"), event(4)])
async def test_what_does_not_follow_sends_every_watcher_to_the_owner(sent) -> None:
    """The owner had no longer what follows, or is another one: its snapshot is for each watcher by itself."""
    owner = Owner()
    relay = relayed(owner)
    async with following(relay, 0) as first, following(relay, 0) as second:
        owner.send(event(1), sent)
        assert await asyncio.gather(taken(first, 1), taken(second, 1)) == [[1], [1]]
        for watcher in (first, second):
            with pytest.raises(FellBehindError):
                await taken(watcher, 1)


async def test_the_owners_heartbeats_reach_who_has_heard_all() -> None:
    owner = Owner()
    relay = relayed(owner)
    async with following(relay, 0) as first, following(relay, 0) as second:
        owner.send(event(1))
        for watcher in (first, second):
            assert await taken(watcher, 1) == [1]
        waiting = [asyncio.ensure_future(anext(watcher)) for watcher in (first, second)]
        await asyncio.sleep(0)
        owner.send(event(1, heartbeat=Heartbeat()))
        kinds = [(await asyncio.wait_for(heard, 60)).WhichOneof("event") for heard in waiting]
    assert kinds == ["heartbeat", "heartbeat"]


async def test_what_ends_the_owners_stream_is_told_to_all_once_they_have_heard_the_rest() -> None:
    owner = Owner()
    relay = relayed(owner)
    async with following(relay, 0) as first, following(relay, 0) as second:
        owner.send(event(1), fault(Reason.DRAINING, "It ends."))
        assert await asyncio.gather(taken(first, 1), taken(second, 1)) == [[1], [1]]
        for watcher in (first, second):
            with pytest.raises(TurnwrightError) as ended:
                await taken(watcher, 1)
            assert ended.value.reason is Reason.DRAINING
    assert relay.has_ended


async def test_a_stream_that_just_ends_ends_every_watch() -> None:
    owner = Owner()
    owner.send(event(1), None)
    assert [one.cursor.seq async for one in relayed(owner).follow(at(0))] == [1]


async def test_a_relay_ends_with_its_last_watcher_and_begins_anew_with_the_next() -> None:
    owner, relays = Owner(), Relays(TailBounds(KEPT, 1_000_000))
    first = relayed(owner, 0, relays)
    async with following(first, 0) as watcher:
        owner.send(event(1))
        assert await taken(watcher, 1) == [1]
        second = relayed(owner, 5, relays)
        assert second is first
        async with following(second, 5) as ahead:
            waiting = asyncio.ensure_future(anext(ahead))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        assert owner.closed == 0
    assert owner.closed == 1
    third = relayed(owner, 5, relays)
    assert third is not first
    async with following(third, 5) as watcher:
        owner.send(event(6))
        assert await taken(watcher, 1) == [6]
    assert owner.opened == [at(0), at(5)]


async def test_a_relay_that_began_later_is_not_for_who_needs_more() -> None:
    owner, relays = Owner(), Relays(TailBounds(KEPT, 1_000_000))
    later = relayed(owner, 5, relays)
    assert [relayed(owner, seq, relays) for seq in (4, 5, 6)] == [None, later, later]
    assert relays.find(KEY, at(5, "another"), owner.upstream) is None
    assert owner.opened == []


async def test_nothing_is_kept_of_a_relay_that_nobody_follows() -> None:
    owner, relays = Owner(), Relays(TailBounds(KEPT, 1_000_000))
    owner.send(event(1), None)
    assert [one.cursor.seq async for one in relayed(owner, 0, relays).follow(at(0))] == [1]
    relayed(owner, 9, relays)
    gc.collect()
    assert not relays._relays


async def test_a_relay_that_ended_is_replaced_while_others_still_follow_it() -> None:
    owner, relays = Owner(), Relays(TailBounds(KEPT, 1_000_000))
    async with following(relayed(owner, 0, relays), 0) as old, following(relayed(owner, 0, relays), 0) as slow:
        owner.send(event(1), event(2), None)
        assert await taken(slow, 1) == [1]
        assert [one.cursor.seq async for one in old] == [1, 2]
        async with following(relayed(owner, 9, relays), 9) as anew:
            owner.send(event(10))
            assert await taken(anew, 1) == [10]
        assert [one.cursor.seq async for one in slow] == [2]


async def test_a_relay_that_crashes_ends_its_watches_and_says_so() -> None:
    owner = Owner()
    with logged() as lines:
        owner.send(event(1), ValueError("This is no event."))
        async with asyncio.timeout(60):
            seen = [one.cursor.seq async for one in relayed(owner).follow(at(0))]
        # What a task leaves behind it is said in the next round of the event loop.
        await asyncio.sleep(0)
    assert (seen, [(line["event"], line["relay"]) for line in lines]) == ([1], [("relay_crashed", "relay r")])

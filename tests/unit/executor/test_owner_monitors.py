"""Who owns a run that many watch at an executor that does not: it is asked once for all of them."""

from __future__ import annotations

import asyncio

import pytest
from turnwright.store.v1 import lease_pb2, read_pb2
from turnwright.types.v1 import run_pb2
from turnwright.types.v1.cursor_pb2 import EventCursor

from turnwright_core.rpc.transport import PLAINTEXT
from turnwright_core.runs import QUEUED
from turnwright_executor.peers.owners import AVOIDED_LOOKS, OwnerMonitors, Owners
from turnwright_executor.watching.tail import MovedError
from unit.executor.test_hubs import RUN, OddStore, hubs_over

pytestmark = pytest.mark.asyncio

WATCHERS = 20
POLL_S = 0.005


class StoreOfMany(OddStore):
    """A store of a run at rest, on which another executor begins to work."""

    def __init__(self) -> None:
        self.asked = 0
        self.was_asked, self.begins = asyncio.Event(), asyncio.Event()

    async def GetRun(self, request, context):
        answer = await super().GetRun(request, context)
        answer.run.status = 200
        return answer

    async def GetLease(self, request, context):
        self.asked += 1
        self.was_asked.set()
        if self.begins.is_set():
            return lease_pb2.GetLeaseResponse(owner="other", address="there:1", run_status=QUEUED)
        return lease_pb2.GetLeaseResponse(run_status=200)

    async def WatchChanges(self, request, context):
        await self.begins.wait()
        run = run_pb2.Run(project="p", run="r", status=QUEUED)
        yield read_pb2.WatchChangesResponse(run=run, cursor={"incarnation": "i", "run_revision": 2})
        await asyncio.Event().wait()


async def test_the_watchers_of_a_run_ask_once_and_all_leave_when_another_executor_begins(tmp_path) -> None:
    store = StoreOfMany()
    async with hubs_over(store, tmp_path) as hubs, asyncio.timeout(60), hubs.hold(RUN) as hub:
        owners = Owners(hub._ledger, lambda _: False, PLAINTEXT)
        monitors = OwnerMonitors(owners, POLL_S)
        opened = [asyncio.Event() for _ in range(WATCHERS)]

        async def watch(number: int) -> EventCursor:
            position = EventCursor()
            events = await hub.watch(position)
            with monitors.here(hub, ""):
                try:
                    async for _ in events:
                        opened[number].set()
                except MovedError:
                    return position
            raise AssertionError("the watch ended")

        watches = [asyncio.create_task(watch(number)) for number in range(WATCHERS)]
        await asyncio.gather(*(each.wait() for each in opened), store.was_asked.wait())
        await asyncio.sleep(10 * POLL_S)
        at_rest = store.asked
        store.begins.set()
        positions = await asyncio.gather(*watches)
        assert (at_rest, store.asked) == (1, 2)
        assert {one.epoch for one in positions} == {hub.epoch}
        # Nobody follows it any more.
        assert not monitors._monitors


async def test_an_owner_that_does_not_answer_is_not_tried_again_at_once(tmp_path) -> None:
    store = StoreOfMany()
    store.begins.set()
    async with hubs_over(store, tmp_path) as hubs, asyncio.timeout(60), hubs.hold(RUN) as hub:
        monitors = OwnerMonitors(Owners(hub._ledger, lambda _: False, PLAINTEXT), POLL_S)
        with monitors.here(hub, "there:1") as monitor:
            await monitor.moved.wait()
    assert store.asked >= AVOIDED_LOOKS


async def test_streams_from_one_owner_share_a_monitor_which_rests_until_the_owner_sends(tmp_path) -> None:
    store, gone = StoreOfMany(), []
    async with hubs_over(store, tmp_path) as hubs, asyncio.timeout(60), hubs.hold(RUN) as hub:
        monitors = OwnerMonitors(Owners(hub._ledger, lambda _: False, PLAINTEXT), POLL_S)
        with (
            monitors.there(RUN, "here:1", lambda: gone.append(1)) as monitor,
            monitors.there(RUN, "here:1", lambda: gone.append(2)) as second,
        ):
            assert second is monitor
            await store.was_asked.wait()
            await asyncio.sleep(10 * POLL_S)
            store.begins.set()
            monitor.active.set()
            await monitor.moved.wait()
    assert (store.asked, gone) == (2, [1, 2])
    assert not monitors._monitors


async def test_a_stream_from_an_owner_ends_once_this_executor_has_the_run_and_the_store_is_not_asked(tmp_path) -> None:
    store, gone = StoreOfMany(), []
    async with hubs_over(store, tmp_path) as hubs, asyncio.timeout(60), hubs.hold(RUN) as hub:
        monitors = OwnerMonitors(Owners(hub._ledger, lambda _: True, PLAINTEXT), POLL_S)
        with monitors.there(RUN, "there:1", lambda: gone.append(1)) as monitor:
            await monitor.moved.wait()
    assert (store.asked, gone) == (0, [1])

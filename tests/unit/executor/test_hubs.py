"""What is kept of runs that were watched, and of those that cannot be."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from turnwright.executor.v1 import event_pb2
from turnwright.executor.v1.executor_service_pb2 import WatchRunResponse
from turnwright.runs.v1 import run_service_pb2, run_service_pb2_grpc
from turnwright.store.v1 import read_pb2, store_service_pb2_grpc
from turnwright.types.v1 import entry_pb2, run_pb2, settings_pb2
from turnwright.types.v1.cursor_pb2 import EventCursor

from log_lines import logged
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.wire.owner_calls import OWNER_CALLS
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.peers.store import StoreLedger
from turnwright_executor.watching.hub import FEED_CRASHES_MAX, STORE_AWAY
from turnwright_executor.watching.hubs import Hubs
from turnwright_kit.peer import Peer
from turnwright_kit.server import RunningServer
from turnwright_kit.service import Service

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUN = RunAddress("p", "r")


def kept(hubs: Hubs) -> int:
    """Runs that anything is kept of."""
    return len(hubs._hubs.keys() | set(hubs._opening) | hubs._lingering.keys())


async def idle_run(bench, store: Peer, name: str) -> tuple[run_service_pb2_grpc.RunServiceStub, RunAddress]:
    """A new run without work, and who can delete it."""
    address = RunAddress(bench.entries.address.project, name)
    stub = run_service_pb2_grpc.RunServiceStub(store.channel)
    settings = settings_pb2.RunSettings(model="m")
    wanted = run_service_pb2.CreateRunRequest(project=address.project, run=address.run, settings=settings)
    await store.call(stub.CreateRun, wanted)
    return stub, address


async def nothing_kept(hubs: Hubs) -> None:
    async with asyncio.timeout(60):
        while kept(hubs):  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)


async def watched(hubs: Hubs, address: RunAddress) -> None:
    async with hubs.hold(address):
        pass


async def test_nothing_is_kept_of_runs_that_nobody_knows(bench) -> None:
    hubs = Hubs("o", bench.entries.ledger, ExecutorSettings())
    for number in range(3):
        with pytest.raises(TurnwrightError) as refused:
            await watched(hubs, RunAddress(bench.entries.address.project, f"nobody-{number}"))
        assert refused.value.reason is Reason.RUN_NOT_FOUND
    assert kept(hubs) == 0


async def test_nothing_is_kept_of_a_run_that_was_removed_while_somebody_watched(bench, store) -> None:
    stub, address = await idle_run(bench, store, "idle")
    hubs = Hubs("o", bench.entries.ledger, ExecutorSettings())
    async with hubs.hold(address) as hub, asyncio.timeout(60):
        events = await hub.watch(EventCursor())
        first = (await anext(events)).WhichOneof("event")
        await store.call(stub.DeleteRun, run_service_pb2.DeleteRunRequest(project=address.project, run=address.run))
        rest = [event async for event in events]
        # A run of its name can be created again.
        assert not hubs.has(address)
    assert (first, rest) == ("snapshot", [])
    with pytest.raises(TurnwrightError):
        await watched(hubs, address)
    assert kept(hubs) == 0


async def test_all_who_come_at_once_get_one_hub(bench) -> None:
    hubs = Hubs("o", bench.entries.ledger, ExecutorSettings(linger_s=0))
    found = []

    async def look() -> None:
        async with hubs.hold(bench.entries.address) as hub:
            found.append(hub)
            await asyncio.sleep(0.05)

    await asyncio.gather(*(look() for _ in range(5)))
    assert len({id(hub) for hub in found}) == 1
    await nothing_kept(hubs)
    await hubs.close()


class OddStore(run_service_pb2_grpc.RunServiceServicer, store_service_pb2_grpc.StoreServiceServicer):
    """A store that tells of a body whose beginning and length do not go together."""

    async def GetRun(self, request, context):
        return run_service_pb2.GetRunResponse(run=run_pb2.Run(project=request.project, run=request.run, status=100))

    async def ReadView(self, request, context):
        channel = {"path": "sh://turn_1/x_1", "state": entry_pb2.STATE_STREAMING, "body": "é", "body_size_bytes": 1}
        yield read_pb2.ReadViewResponse(entries=[channel], cursor={"incarnation": "i", "run_revision": 1})

    async def WatchChanges(self, request, context):
        channel = {
            "path": "sh://turn_1/x_1", "state": entry_pb2.STATE_STREAMING, "body": "éé", "body_size_bytes": 4, "revision": 2,
        }  # fmt: skip
        yield read_pb2.WatchChangesResponse(entries=[channel], cursor={"incarnation": "i", "run_revision": 2})
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def hubs_over(servicer, tmp_path):
    """Hubs over a store of this kind."""

    def register(server) -> None:
        run_service_pb2_grpc.add_RunServiceServicer_to_server(servicer, server)
        store_service_pb2_grpc.add_StoreServiceServicer_to_server(servicer, server)

    service = Service("store", "turnwright.store.v1.StoreService", register)
    server = RunningServer(service, f"unix:{tmp_path}/s.sock", "secret", 0.1)
    await server.start()
    peer = Peer("store", server.address, "secret", 10.0, codecs=OWNER_CALLS)
    hubs = Hubs("o", StoreLedger(peer, "o", ""), ExecutorSettings())
    try:
        yield hubs
    finally:
        await hubs.close()
        await peer.close()
        await server.stop()


async def test_changes_that_cannot_be_told_again_and_again_end_the_watches_and_that_is_said(tmp_path) -> None:
    crashes = FEED_CRASHES_MAX + 1
    async with hubs_over(OddStore(), tmp_path) as hubs:
        with logged("info") as lines:
            async with asyncio.timeout(60), hubs.hold(RUN) as hub:
                told = [event.WhichOneof("event") async for event in await hub.watch(EventCursor())]
    said = [(line["event"], line["run"]) for line in lines if line["logger"] == "hub"]
    assert (told, said) == (["snapshot"] * crashes, [("feed_crashed", "r")] * crashes)


class OddAtFirst(OddStore):
    """A store whose first feeds cannot be told; meanwhile there happens what a test waits for."""

    def __init__(self, odd_feeds: int = 1) -> None:
        self.feeds = 0
        self._odd_feeds = odd_feeds

    async def ReadView(self, request, context):
        if self.feeds < self._odd_feeds:
            async for part in super().ReadView(request, context):
                yield part
            return
        ended = {"path": "sh://turn_1/x_1", "state": entry_pb2.STATE_CANCELLED, "outcome": "expired:499", "revision": 3}
        yield read_pb2.ReadViewResponse(entries=[ended], cursor={"incarnation": "i", "run_revision": 3})

    async def WatchChanges(self, request, context):
        self.feeds += 1
        if self.feeds <= self._odd_feeds:
            async for change in super().WatchChanges(request, context):
                yield change
        run = run_pb2.Run(project="p", run="r", status=102, loop={"sequence": 7})
        yield read_pb2.WatchChangesResponse(
            run=run, abort_requested=True, cursor={"incarnation": "i", "run_revision": 4}
        )
        await asyncio.Event().wait()


async def abort_reported(hub, sequence):
    told = asyncio.Queue()
    hub.report_abort(told.put_nowait)
    assert await told.get() == sequence


@pytest.mark.parametrize(
    "waits",
    [
        lambda hub: hub.ended(["sh://turn_1/x_1"]),
        lambda hub: hub.expired(hub.moment),
        lambda hub: abort_reported(hub, 7),
    ],
    ids=["ended", "expired", "abort"],
)
async def test_who_waits_for_something_hears_it_though_a_change_before_could_not_be_told(tmp_path, waits) -> None:
    async with hubs_over(OddAtFirst(), tmp_path) as hubs, asyncio.timeout(60), hubs.hold(RUN) as hub:
        await waits(hub)
        assert not hub.has_ended


async def test_who_waits_for_something_hears_it_from_the_next_hub_when_one_ends(tmp_path) -> None:
    store = OddAtFirst(FEED_CRASHES_MAX + 1)
    async with hubs_over(store, tmp_path) as hubs, asyncio.timeout(60), hubs.hold(RUN) as hub:
        await hub.expired(0)
        assert hub.has_ended


async def test_after_a_change_that_could_not_be_told_watchers_get_a_snapshot_and_then_what_the_worker_tells(
    tmp_path,
) -> None:
    """A worker keeps its hub: what it tells must not go where nobody listens any more."""
    told = []
    async with hubs_over(OddAtFirst(), tmp_path) as hubs, asyncio.timeout(60), hubs.hold(RUN) as hub:
        async for event in await hub.watch(EventCursor()):
            told.append((event.WhichOneof("event"), event.cursor.seq))
            if event.snapshot.last and event.snapshot.entries[0].state == entry_pb2.STATE_CANCELLED:
                hub.publish(WatchRunResponse(stream_started=event_pb2.StreamStarted(turn=1)))
            if event.WhichOneof("event") == "stream_started":
                break
    assert [kind for kind, _ in told if kind != "run_state"] == ["snapshot", "snapshot", "stream_started"]
    assert [seq for _, seq in told] == sorted({seq for _, seq in told})


class OtherHistory(OddStore):
    """A store that was restored from a copy while somebody watched."""

    def __init__(self) -> None:
        self._feeds = 0

    async def WatchChanges(self, request, context):
        self._feeds += 1
        if self._feeds == 1:
            raise fault(Reason.CURSOR_FOREIGN, "This is another history.")
        await asyncio.Event().wait()
        yield read_pb2.WatchChangesResponse()


async def test_in_another_history_of_the_store_watchers_get_a_snapshot_of_it_in_the_same_watch(tmp_path) -> None:
    async with hubs_over(OtherHistory(), tmp_path) as hubs, asyncio.timeout(60), hubs.hold(RUN) as hub:
        async with contextlib.aclosing(await hub.watch(EventCursor())) as events:
            told = [(await anext(events)).WhichOneof("event") for _ in range(2)]
        assert (told, hub.has_ended) == (["snapshot", "snapshot"], False)


async def test_who_waits_hears_that_the_run_is_gone(bench, store) -> None:
    stub, address = await idle_run(bench, store, "waited")
    hubs = Hubs("o", bench.entries.ledger, ExecutorSettings())
    async with hubs.hold(address) as hub, asyncio.timeout(60):
        waiting = asyncio.create_task(hub.ended(["sh://turn_1/x_1"]))
        await store.call(stub.DeleteRun, run_service_pb2.DeleteRunRequest(project=address.project, run=address.run))
        with pytest.raises(TurnwrightError) as gone:
            await waiting
    assert gone.value.reason is Reason.RUN_NOT_FOUND
    await hubs.close()


async def test_who_waits_hears_of_the_end_of_all_hubs_and_no_other_is_opened(bench) -> None:
    hubs = Hubs("o", bench.entries.ledger, ExecutorSettings())
    async with hubs.hold(bench.entries.address) as hub, asyncio.timeout(60):
        waits = [asyncio.create_task(wait) for wait in (hub.ended(["a"]), hub.expired(0))]
        await asyncio.sleep(0.05)
        await hubs.close()
        heard = await asyncio.gather(*waits, return_exceptions=True)
    with pytest.raises(TurnwrightError) as refused:
        await watched(hubs, bench.entries.address)
    assert [error.reason for error in (*heard, refused.value)] == [Reason.DRAINING] * 3


class SlowStore(OddStore):
    """A store that takes its time to tell how a run is."""

    def __init__(self) -> None:
        self.asked, self.answers = asyncio.Event(), asyncio.Event()

    async def GetRun(self, request, context):
        self.asked.set()
        await self.answers.wait()
        return await super().GetRun(request, context)


async def test_a_hub_that_is_being_opened_when_all_are_closed_does_not_open(tmp_path) -> None:
    store = SlowStore()
    async with hubs_over(store, tmp_path) as hubs, asyncio.timeout(60):
        coming = asyncio.create_task(watched(hubs, RUN))
        await store.asked.wait()
        await hubs.close()
        store.answers.set()
        with pytest.raises(TurnwrightError) as refused:
            await coming
        feeds = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("feed")]
    assert (refused.value.reason, feeds, kept(hubs)) == (Reason.DRAINING, [], 0)


class RefusingStore(OddStore):
    """A store that refuses the first feed for a reason that does not pass by itself."""

    def __init__(self) -> None:
        self.asked_again = asyncio.Event()
        self._feeds = 0

    async def WatchChanges(self, request, context):
        self._feeds += 1
        if self._feeds == 1:
            raise fault(Reason.WRITER_FORBIDDEN, "Not for you.", path="")
        self.asked_again.set()
        await asyncio.Event().wait()
        yield read_pb2.WatchChangesResponse()


async def test_a_feed_that_is_refused_is_asked_for_again_and_said_to_be(tmp_path) -> None:
    store = RefusingStore()
    async with hubs_over(store, tmp_path) as hubs:
        with logged("info") as lines:
            async with asyncio.timeout(60), hubs.hold(RUN):
                await store.asked_again.wait()
    told = [(line["event"], line["reason"]) for line in lines if line["logger"] == "hub"]
    assert told == [("feed_failed", "WRITER_FORBIDDEN")]


class AwayStore(OddStore):
    """A store whose database is away."""

    async def WatchChanges(self, request, context):
        raise fault(Reason.DATABASE_UNAVAILABLE, "It is away.")
        yield read_pb2.WatchChangesResponse()


async def test_watchers_are_told_once_that_the_store_is_away(tmp_path) -> None:
    async with hubs_over(AwayStore(), tmp_path) as hubs, asyncio.timeout(60), hubs.hold(RUN) as hub:
        async with contextlib.aclosing(await hub.watch(EventCursor())) as events:
            told = [await anext(events) for _ in range(2)]
        assert [event.WhichOneof("event") for event in told] == ["snapshot", "notice"]
        assert told[1].notice.text == STORE_AWAY


class LateStore(OddStore):
    """A store of a run in which the time for a decision has passed."""

    async def ReadView(self, request, context):
        expired = {
            "path": "log://turn_1/set/a",
            "state": entry_pb2.STATE_CANCELLED,
            "outcome": "expired:499",
            "revision": 3,
        }
        yield read_pb2.ReadViewResponse(entries=[expired], cursor={"incarnation": "i", "run_revision": 3})

    async def WatchChanges(self, request, context):
        await asyncio.Event().wait()
        yield read_pb2.WatchChangesResponse()


async def test_an_expiry_that_was_told_before_somebody_waits_for_it_is_heard_all_the_same(tmp_path) -> None:
    async with hubs_over(LateStore(), tmp_path) as hubs, asyncio.timeout(60), hubs.hold(RUN) as hub:
        await hub.expired(2)
        later = asyncio.create_task(hub.expired(hub.moment))
        await asyncio.sleep(0.05)
        assert not later.done()
        later.cancel()

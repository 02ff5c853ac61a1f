"""What is kept of runs that were watched, and of those that cannot be."""

from __future__ import annotations

import asyncio

import pytest
from turnwright.store.v1 import read_pb2, registry_pb2, store_service_pb2_grpc
from turnwright.types.v1 import entry_pb2, run_pb2, settings_pb2

from log_lines import logged
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.kit.peer import Peer
from turnwright_core.kit.server import RunningServer, Service
from turnwright_executor.app.hubs import Hubs
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.edge.store import StoreLedger
from turnwright_executor.ports.address import RunAddress

pytestmark = pytest.mark.asyncio(loop_scope="module")


def kept(hubs: Hubs) -> int:
    """Runs that anything is kept of."""
    return len(hubs._hubs.keys() | hubs._opening.keys() | hubs._lingering.keys())


async def watched(hubs: Hubs, address: RunAddress) -> None:
    async with hubs.hold(address):
        pass


async def test_nothing_is_kept_of_runs_that_nobody_knows(bench) -> None:
    hubs = Hubs("o", bench.entries._ledger, ExecutorSettings())
    for number in range(3):
        with pytest.raises(TurnwrightError) as refused:
            await watched(hubs, RunAddress(bench.entries._address.project, f"nobody-{number}"))
        assert refused.value.reason is Reason.RUN_NOT_FOUND
    assert kept(hubs) == 0


async def test_nothing_is_kept_of_a_run_that_was_removed_while_somebody_watched(bench, store) -> None:
    address = RunAddress(bench.entries._address.project, "idle")
    hubs = Hubs("o", bench.entries._ledger, ExecutorSettings())
    stub = store_service_pb2_grpc.StoreServiceStub(store.channel)
    settings = settings_pb2.RunSettings(model="m")
    wanted = registry_pb2.CreateRunRequest(project=address.project, run=address.run, settings=settings)
    await store.call(stub.CreateRun, wanted)
    async with hubs.hold(address) as hub, asyncio.timeout(10):
        events = hub.watch(None)
        first = (await anext(events)).WhichOneof("event")
        await store.call(stub.RemoveRun, registry_pb2.RemoveRunRequest(project=address.project, run=address.run))
        rest = [event async for event in events]
    assert (first, rest) == ("snapshot", [])
    with pytest.raises(TurnwrightError):
        await watched(hubs, address)
    assert kept(hubs) == 0


async def test_all_who_come_at_once_get_one_hub(bench) -> None:
    hubs = Hubs("o", bench.entries._ledger, ExecutorSettings(linger_s=0))
    found = []

    async def look() -> None:
        async with hubs.hold(bench.entries._address) as hub:
            found.append(hub)
            await asyncio.sleep(0.05)

    await asyncio.gather(*(look() for _ in range(5)))
    assert len({id(hub) for hub in found}) == 1
    await asyncio.sleep(0.05)
    assert kept(hubs) == 0
    await hubs.close()


class OddStore(store_service_pb2_grpc.StoreServiceServicer):
    """A store that tells of a body whose beginning and length do not go together."""

    async def GetRun(self, request, context):
        return registry_pb2.GetRunResponse(run=run_pb2.Run(project=request.project, run=request.run, status=100))

    async def ReadView(self, request, context):
        channel = {"path": "sh://turn_1/x_1", "state": entry_pb2.STATE_STREAMING, "body": "é", "body_bytes": 1}
        yield read_pb2.ReadViewResponse(entries=[channel], cursor={"incarnation": "i", "run": 1})

    async def WatchChanges(self, request, context):
        channel = {
            "path": "sh://turn_1/x_1", "state": entry_pb2.STATE_STREAMING, "body": "éé", "body_bytes": 4, "revision": 2,
        }  # fmt: skip
        yield read_pb2.WatchChangesResponse(entries=[channel], cursor={"incarnation": "i", "run": 2})
        await asyncio.Event().wait()


async def test_a_change_that_cannot_be_told_ends_the_watches_and_says_so(tmp_path) -> None:
    def register(server) -> None:
        store_service_pb2_grpc.add_StoreServiceServicer_to_server(OddStore(), server)

    service = Service("store", "turnwright.store.v1.StoreService", register)
    server = RunningServer(service, f"unix:{tmp_path}/s.sock", "secret", 0.1)
    await server.start()
    peer = Peer("store", server.address, "secret", 10.0)
    hubs = Hubs("o", StoreLedger(peer, "o", ""), ExecutorSettings())
    with logged() as lines:
        async with asyncio.timeout(10), hubs.hold(RunAddress("p", "r")) as hub:
            told = [event.WhichOneof("event") async for event in hub.watch(None)]
    await hubs.close()
    await peer.close()
    await server.stop()
    assert (told, [(line["event"], line["run"]) for line in lines]) == (["snapshot"], [("feed_crashed", "r")])

"""Workers whose runs cannot be worked on, because of a fault of ours: nobody else may have to wait for them."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from turnwright.store.v1 import lease_pb2, read_pb2, registry_pb2, store_service_pb2_grpc
from turnwright.types.v1 import entry_pb2, run_pb2

from log_lines import logged
from turnwright_core.kit.peer import Peer
from turnwright_core.kit.server import RunningServer, Service
from turnwright_executor.app.hubs import Hubs
from turnwright_executor.app.leases import Leases
from turnwright_executor.app.loop import Services
from turnwright_executor.app.runner import Runner
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.edge.store import StoreLedger
from turnwright_executor.hooks.chains import Hooks
from turnwright_executor.hooks.rules import new_registry
from turnwright_executor.ports.address import RunAddress

pytestmark = pytest.mark.asyncio

RUN = RunAddress("p", "r")


class OddStore(store_service_pb2_grpc.StoreServiceServicer):
    """A store with a run whose loop is to be aborted, and that tells of states that there are not."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.looks = 0
        self.looked_again = asyncio.Event()

    async def GetRun(self, request, context):
        return registry_pb2.GetRunResponse(run=run_pb2.Run(project="p", run="r", status=102))

    async def ReadView(self, request, context):
        yield read_pb2.ReadViewResponse(cursor={"incarnation": "i", "run": 1})

    async def WatchChanges(self, request, context):
        await asyncio.Event().wait()
        yield read_pb2.WatchChangesResponse()

    async def ClaimWork(self, request, context):
        self.looks += 1
        if self.looks == 1:
            odd = {"path": "log://turn_1/sh/x", "state": 77, "attributes_json": "{}"}
            return lease_pb2.ClaimWorkResponse(claims=[{"run": {"project": "p", "run": "odd"}, "records": [odd]}])
        self.looked_again.set()
        return lease_pb2.ClaimWorkResponse()

    async def ClaimRun(self, request, context):
        mark = '{"tool": "sh", "dispatched": true}'
        record = {"path": "log://turn_1/sh/x", "state": entry_pb2.STATE_RECORDED, "attributes_json": mark}
        return lease_pb2.ClaimRunResponse(
            fence={"epoch": 1},
            run=run_pb2.Run(project="p", run="r", status=102),
            loop={"sequence": 1, "status": 102},
            open_turn={"number": 1},
            records=[record],
            abort_requested=True,
            lease_ms=60_000,
        )

    async def GetEntries(self, request, context):
        return read_pb2.GetEntriesResponse(entries=[{"path": path, "state": 77} for path in request.paths])

    async def ReleaseRun(self, request, context):
        self.released.set()
        return lease_pb2.ReleaseRunResponse()


@contextlib.asynccontextmanager
async def runner_over(store, tmp_path, *, seek=False):
    """A runner that works against this store, and its leases."""

    def register(server) -> None:
        store_service_pb2_grpc.add_StoreServiceServicer_to_server(store, server)

    service = Service("store", "turnwright.store.v1.StoreService", register)
    server = RunningServer(service, f"unix:{tmp_path}/s.sock", "secret", 0.1)
    await server.start()
    peer = Peer("store", server.address, "secret", 10.0)
    ledger, settings = StoreLedger(peer, "o", ""), ExecutorSettings(work_poll_s=0.1)
    hubs, leases = Hubs("o", ledger, settings), Leases(ledger, time.monotonic, (), registers=False)
    runner = Runner(Services(ledger, None, None, {}, {}, settings, Hooks(new_registry())), hubs, leases, None)
    runner.start(seek=seek)
    try:
        yield runner, leases
    finally:
        await runner.drain()
        await hubs.close()
        await peer.close()
        await server.stop()


async def test_a_run_whose_worker_crashes_is_given_back(tmp_path) -> None:
    store = OddStore()
    with logged() as lines:
        async with runner_over(store, tmp_path) as (runner, leases), asyncio.timeout(10):
            runner.kick(RUN)
            await asyncio.gather(runner._workers[RUN].task)
            assert (store.released.is_set(), leases.holds(RUN)) == (True, False)
    assert [(line["event"], line["run"]) for line in lines if "run" in line] == [("worker_crashed", "r")]


async def test_a_run_that_waits_for_a_decision_again_is_looked_after_once(tmp_path) -> None:
    async with runner_over(OddStore(), tmp_path) as (runner, _):
        for _ in range(3):
            runner._expect_expiry(RUN, 1)
        await asyncio.sleep(0.05)
        assert [task.get_name() for task in asyncio.all_tasks() if "expiry" in task.get_name()] == ["expiry in r"]


async def test_a_run_that_cannot_be_read_does_not_end_the_search_for_work(tmp_path) -> None:
    store = OddStore()
    with logged() as lines:
        async with runner_over(store, tmp_path, seek=True), asyncio.timeout(10):
            await store.looked_again.wait()
    assert [line["event"] for line in lines if line["logger"] == "runner"] == ["seeking_crashed"]

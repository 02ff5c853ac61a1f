"""Workers whose runs cannot be worked on, because of a fault of ours: nobody else may have to wait for them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import timedelta

import pytest
from turnwright.runs.v1 import run_service_pb2, run_service_pb2_grpc
from turnwright.store.v1 import lease_pb2, read_pb2, store_service_pb2_grpc
from turnwright.types.v1 import entry_pb2, run_pb2
from turnwright.types.v1.model_pb2 import Model

from log_lines import logged
from turnwright_core.backoff import Backoff
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.wire.owner_calls import OWNER_CALLS
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.endings import is_of_store, is_transient
from turnwright_executor.hooks.chains import Hooks
from turnwright_executor.hooks.registry import new_registry
from turnwright_executor.peers.store import StoreLedger
from turnwright_executor.runs.leases import Leases
from turnwright_executor.runs.scheduler import SERVICE_RETRIES_MAX, Scheduler
from turnwright_executor.turn.loop_scope import Placement, Services
from turnwright_executor.watching.hubs import Hubs
from turnwright_kit.peer import Peer
from turnwright_kit.server import RunningServer
from turnwright_kit.service import Service

pytestmark = pytest.mark.asyncio

RUN = RunAddress("p", "r")


class OddStore(run_service_pb2_grpc.RunServiceServicer, store_service_pb2_grpc.StoreServiceServicer):
    """A store with a run whose loop is to be aborted, and that tells of states that there are not."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.looks = 0
        self.looked_again = asyncio.Event()

    async def GetRun(self, request, context):
        return run_service_pb2.GetRunResponse(run=run_pb2.Run(project="p", run="r", status=102))

    async def ReadView(self, request, context):
        yield read_pb2.ReadViewResponse(cursor={"incarnation": "i", "run_revision": 1})

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
        mark = {"tool": "sh", "dispatched": {}}
        path, state = "log://turn_1/sh/x", entry_pb2.STATE_RECORDED
        record = {"path": path, "state": state, "attributes_json": "{}", "record": mark}
        return lease_pb2.ClaimRunResponse(
            epoch=1,
            run=run_pb2.Run(project="p", run="r", status=102),
            loop={"sequence": 1, "status": 102},
            open_turn={"number": 1},
            records=[record],
            abort_requested=True,
            lease_duration=timedelta(minutes=1),
        )

    async def GetEntries(self, request, context):
        return read_pb2.GetEntriesResponse(entries=[{"path": path, "state": 77} for path in request.paths])

    async def ReleaseRun(self, request, context):
        self.released.set()
        return lease_pb2.ReleaseRunResponse()


@contextlib.asynccontextmanager
async def over(store, tmp_path):
    """The ledger that this store keeps."""

    def register(server) -> None:
        run_service_pb2_grpc.add_RunServiceServicer_to_server(store, server)
        store_service_pb2_grpc.add_StoreServiceServicer_to_server(store, server)

    service = Service("store", "turnwright.store.v1.StoreService", register)
    server = RunningServer(service, f"unix:{tmp_path}/s.sock", "secret", 0.1)
    await server.start()
    peer = Peer("store", server.address, "secret", 10.0, codecs=OWNER_CALLS)
    try:
        yield StoreLedger(peer, "o", "")
    finally:
        await peer.close()
        await server.stop()


@contextlib.asynccontextmanager
async def runner_over(store, tmp_path, *, seek=False, **more):
    """A runner that works against this store, and its leases."""
    async with over(store, tmp_path) as ledger, running_over(ledger, seek=seek, **more) as made:
        yield made


async def nowhere(*_: object) -> Placement:
    raise AssertionError("no loop comes so far")


@contextlib.asynccontextmanager
async def running_over(ledger, *, seek, place=nowhere, workspaces=(), **more):
    settings = ExecutorSettings(work_poll_s=0.1)
    hubs, leases = Hubs("o", ledger, settings), Leases(ledger, time.monotonic, workspaces, registers=False)
    runner = Scheduler(
        Services(ledger, None, None, None, {}, settings, Hooks(new_registry()), None), hubs, leases, place, **more
    )
    runner.start(seek=seek)
    try:
        yield runner, leases
    finally:
        await runner.drain()
        await hubs.close()


async def test_a_run_whose_worker_crashes_is_given_back(tmp_path) -> None:
    store = OddStore()
    with logged("info") as lines:
        async with runner_over(store, tmp_path) as (runner, leases), asyncio.timeout(60):
            runner.kick(RUN)
            await asyncio.gather(runner._workers[RUN].task)
            assert (store.released.is_set(), leases.holds(RUN)) == (True, False)
    assert [(line["event"], line["run"]) for line in lines if line["logger"] == "scheduler"] == [
        ("worker_crashed", "r")
    ]


async def test_a_run_that_waits_for_a_decision_again_is_looked_after_once(tmp_path) -> None:
    async with runner_over(OddStore(), tmp_path) as (runner, _):
        for _ in range(3):
            runner._expect_expiry(RUN, 1)
        await asyncio.sleep(0.05)
        assert [task.get_name() for task in asyncio.all_tasks() if "expiry" in task.get_name()] == ["expiry in r"]


async def test_a_run_that_cannot_be_read_does_not_end_the_search_for_work(tmp_path) -> None:
    store = OddStore()
    with logged("info") as lines:
        async with runner_over(store, tmp_path, seek=True), asyncio.timeout(60):
            await store.looked_again.wait()
    assert [line["event"] for line in lines if line["logger"] == "scheduler"] == ["seeking_crashed"]


class SlowlyClaimed(OddStore):
    """A store that grants a run when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.grants = asyncio.Event(), asyncio.Event()
        self.given_back: list[str] = []

    async def ClaimWork(self, request, context):
        self.asked.set()
        await self.grants.wait()
        return lease_pb2.ClaimWorkResponse(claims=[await self.ClaimRun(request, context)])

    async def ReleaseRun(self, request, context):
        self.given_back.append(request.run)
        return await super().ReleaseRun(request, context)


async def test_an_executor_that_is_about_to_stop_claims_no_more_work(tmp_path) -> None:
    """It serves on for a while; a claim that it had begun to make is given back without a step of work."""
    store = SlowlyClaimed()
    async with runner_over(store, tmp_path, seek=True) as (runner, leases), asyncio.timeout(60):
        service = Service("executor", "turnwright.executor.v1.ExecutorService", lambda _: None, leave=runner.leave)
        server = RunningServer(service, f"unix:{tmp_path}/e.sock", "secret", 0.1)
        await server.start()
        await store.asked.wait()
        await server.leave()
        store.grants.set()
        await store.released.wait()
        worked_on, held = list(runner._workers), leases.held()
        await server.stop()
    assert (worked_on, held, store.given_back) == ([], 0, ["r"])


class HalfReadable(OddStore):
    """A store that grants two runs; the record of one came without its attributes, and cannot be read by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.given_back = []

    def _claim(self, run, epoch, **record):
        record = {"path": "log://turn_1/think/x", "state": entry_pb2.STATE_RECORDED, **record}
        return {
            "epoch": epoch,
            "run": {"project": "p", "run": run},
            "records": [record],
            "lease_duration": timedelta(minutes=1),
        }

    async def ClaimWork(self, request, context):
        self.looks += 1
        if self.looks > 1:
            return lease_pb2.ClaimWorkResponse()
        whole = self._claim("r", 4, attributes_json='{"tool": "think"}')
        return lease_pb2.ClaimWorkResponse(claims=[self._claim("odd", 3), whole])

    async def ClaimRun(self, request, context):
        return lease_pb2.ClaimRunResponse(**self._claim(request.run, 5))

    async def GetEntries(self, request, context):
        raise fault(Reason.LIMIT_EXCEEDED, "Too much.")

    async def ReleaseRun(self, request, context):
        self.given_back.append((request.run, request.epoch))
        return lease_pb2.ReleaseRunResponse()


async def test_a_claimed_run_that_cannot_be_read_is_given_back_and_the_others_are_worked_on(tmp_path) -> None:
    store = HalfReadable()
    async with over(store, tmp_path) as ledger:
        claims = await ledger.claim_work(2, ())
        with pytest.raises(TurnwrightError) as unreadable:
            await ledger.claim(RunAddress("p", "alone"))
    assert ([claim.run.run for claim in claims], unreadable.value.reason) == (["r"], Reason.LIMIT_EXCEEDED)
    assert store.given_back == [("odd", 3), ("alone", 5)]


class RefusingAtFirst(OddStore):
    """A store that refuses a run at first, for a reason that nobody expects to pass."""

    def __init__(self, *refusals) -> None:
        super().__init__()
        self._refusals = list(refusals)

    async def ClaimRun(self, request, context):
        if self._refusals:
            raise self._refusals.pop(0)
        self.looked_again.set()
        return lease_pb2.ClaimRunResponse(
            epoch=1, run={"project": "p", "run": "r"}, lease_duration=timedelta(minutes=1)
        )


@pytest.mark.parametrize(
    "reason", [Reason.INTERNAL, Reason.LIMIT_EXCEEDED, Reason.LEASE_LOST], ids=lambda reason: reason.name
)
async def test_a_run_whose_worker_stopped_is_looked_at_again_where_nobody_seeks_work(tmp_path, reason) -> None:
    """An embedded stack has nobody else who would look, and somebody waits for the end of the loop."""
    store = RefusingAtFirst(*[fault(reason, "Not now.")] * 2)
    async with runner_over(store, tmp_path) as (runner, _), asyncio.timeout(60):
        runner.kick(RUN)
        assert await store.looked_again.wait()


async def test_a_run_whose_worker_crashed_is_looked_at_again_where_nobody_seeks_work(tmp_path) -> None:
    store = OddStore()
    async with runner_over(store, tmp_path) as (runner, _), asyncio.timeout(60):
        runner.kick(RUN)
        await asyncio.gather(runner._workers[RUN].task)
        store.released.clear()
        assert await store.released.wait()


async def test_a_run_that_is_gone_is_not_looked_at_again(tmp_path) -> None:
    store = RefusingAtFirst(fault(Reason.RUN_NOT_FOUND, "There is no such run."))
    async with runner_over(store, tmp_path) as (runner, _), asyncio.timeout(60):
        runner.kick(RUN)
        await asyncio.gather(runner._workers[RUN].task)
        assert runner._waiting == {}


class AwayStore(OddStore):
    """A store whose database is away for a while, in the middle of a loop."""

    def __init__(self, *refusals: Reason) -> None:
        super().__init__()
        self._refusals = list(refusals)
        self.ended = []
        self.has_end = asyncio.Event()

    async def ClaimRun(self, request, context):
        if self._refusals:
            raise fault(self._refusals.pop(0), "Not now.")
        return await super().ClaimRun(request, context)

    async def EndTurn(self, request, context):
        self.ended.append((request.loop_end.status, request.loop_end.reason))
        self.has_end.set()
        raise fault(Reason.RUN_NOT_FOUND, "It is enough.")

    async def GetEntries(self, request, context):
        return read_pb2.GetEntriesResponse()


async def test_a_loop_does_not_fail_because_the_store_was_away_for_long(tmp_path) -> None:
    """Its end is what the run had come to, here an abort, as soon as the store is back."""
    store = AwayStore(*[Reason.DATABASE_UNAVAILABLE] * (SERVICE_RETRIES_MAX + 1))
    async with runner_over(store, tmp_path, backoff=Backoff(0.0, 0.0)) as (runner, _), asyncio.timeout(60):
        runner.kick(RUN)
        await store.has_end.wait()
    assert store.ended == [(499, "aborted")]


async def test_an_abort_before_the_first_step_of_a_worker_leaves_no_worker_that_never_works(tmp_path) -> None:
    # RU111: a claim that comes later would be renewed for ever, and nobody would work on it
    store = AwayStore()
    async with runner_over(store, tmp_path) as (runner, _), asyncio.timeout(60):
        runner.kick(RUN)
        runner.abort(RUN)
        await store.has_end.wait()
    assert store.ended == [(499, "aborted")]


class WorkingStore(AwayStore):
    """A store whose loop nobody has aborted."""

    turn = 1

    async def ClaimRun(self, request, context):
        claim = await super().ClaimRun(request, context)
        claim.abort_requested = False
        claim.run.turn = self.turn
        claim.model.MergeFrom(Model(alias="m", vendor_model="scripted/m", context_length=8192))
        return claim


@pytest.mark.parametrize(
    ("failures", "is_advancing", "status"),
    [
        ([Reason.DATABASE_UNAVAILABLE] * SERVICE_RETRIES_MAX + [Reason.DRAINING] * SERVICE_RETRIES_MAX, False, 0),
        ([Reason.DRAINING] * 2 * SERVICE_RETRIES_MAX, True, 0),
        ([Reason.DRAINING] * (SERVICE_RETRIES_MAX + 1), False, 500),
    ],
    ids=["of the store and of another service", "of two turns", "of one"],
)
async def test_a_loop_fails_by_failures_of_another_service_than_the_store_in_one_turn(
    tmp_path, failures, is_advancing, status
) -> None:
    store, left, worked = WorkingStore(), list(failures), asyncio.Event()

    async def place(*_):
        if left:
            store.turn += is_advancing and len(left) == SERVICE_RETRIES_MAX + 1
            raise fault(left.pop(0), "Not now.")
        worked.set()
        await asyncio.Event().wait()

    async with runner_over(store, tmp_path, place=place, backoff=Backoff(0.0, 0.0)) as (runner, _):
        runner.kick(RUN)
        ends = [asyncio.create_task(event.wait()) for event in (worked, store.has_end)]
        async with asyncio.timeout(60):
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
    assert [ended[0] for ended in store.ended] == ([status] if status else [])


@pytest.mark.parametrize(
    ("error", "is_it"),
    [
        (fault(Reason.SERVICE_UNAVAILABLE, "x", service="store"), True),
        (fault(Reason.SERVICE_UNAVAILABLE, "x", service="provider"), False),
        (fault(Reason.DATABASE_UNAVAILABLE, "x"), True),
        (fault(Reason.QUEUE_FULL, "x", queue="writer"), True),
        (fault(Reason.DRAINING, "x"), False),
    ],
    ids=["store", "provider", "database", "busy", "draining"],
)
async def test_only_another_service_than_the_store_fails_a_loop_by_being_away(error, is_it) -> None:
    assert (is_transient(error), is_of_store(error)) == (True, is_it)


async def test_a_store_that_has_too_much_to_do_is_asked_again(tmp_path) -> None:
    """It has done nothing: what a command brought is stored by the next try, and not by a new life of the turn."""
    store = AwayStore(Reason.QUEUE_FULL, Reason.QUEUE_FULL)
    async with over(store, tmp_path) as ledger:
        assert (await ledger.claim(RUN)).epoch == 1


class OfferingStore(WorkingStore):
    """A store that offers its run at first, and once more when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.offers = 1
        self.is_polled = asyncio.Event()

    async def ClaimWork(self, request, context):
        if not self.offers:
            self.is_polled.set()
            return lease_pb2.ClaimWorkResponse()
        self.offers -= 1
        return lease_pb2.ClaimWorkResponse(claims=[await self.ClaimRun(request, context)])

    async def ClaimRun(self, request, context):
        claim = await super().ClaimRun(request, context)
        self.looks += 1
        claim.epoch, claim.workspace_id = self.looks, "w"
        return claim


async def test_a_run_that_is_claimed_while_its_worker_still_stops_is_worked_on(tmp_path) -> None:
    """Otherwise its lease is renewed forever, and nobody works on it."""
    store, may_stop = OfferingStore(), asyncio.Event()
    working, working_again = asyncio.Event(), asyncio.Event()

    async def place(*_):
        if working.is_set():
            working_again.set()
        working.set()
        try:
            await asyncio.Event().wait()
        finally:
            await may_stop.wait()

    made = runner_over(store, tmp_path, seek=True, place=place, workspaces=("w",))
    async with made as (runner, leases), asyncio.timeout(60):
        await working.wait()
        leases._lose(runner, RUN, to_other=False)
        store.offers = 1
        store.is_polled.clear()
        # Whoever polls again has taken what was offered before.
        await store.is_polled.wait()
        assert leases.holds(RUN)
        may_stop.set()
        await working_again.wait()

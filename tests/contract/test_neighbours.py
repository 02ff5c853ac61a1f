"""A call to a service of the same process is the same call: each fact here is tried over a socket, and without one."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import pytest_asyncio
from turnwright.store.v1 import read_pb2, registry_pb2, store_service_pb2_grpc
from turnwright.types.v1 import run_pb2

from turnwright_core.entries import Tier
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.kit.auth import current_caller
from turnwright_core.kit.neighbours import MESSAGES_AHEAD
from turnwright_core.kit.peer import Peer
from turnwright_core.kit.server import RunningServer, Service

pytestmark = pytest.mark.asyncio

SECRET = "s3cret"

CLEANUP_S = 2.0
"""What some handlers take to end."""


class Probe(store_service_pb2_grpc.StoreServiceServicer):
    """A store that does what a test asks for by the name of a run, and remembers what became of it."""

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()
        self.sent = 0

    async def GetRun(self, request, context):
        match request.run:
            case "caller":
                caller = current_caller()
                return registry_pb2.GetRunResponse(run=run_pb2.Run(run=f"{caller.principal} {caller.tier.name}"))
            case "refused":
                raise fault(Reason.RUN_NOT_FOUND, "There is no such run.", run="refused")
            case "broken":
                raise ZeroDivisionError("a secret")
            case "clings":
                return await self._cling()
            case "bitter":
                return await self._embitter()
        return await self._hang()

    async def ReadView(self, request, context):
        for number in range(1000):
            if request.run == "fails" and number == 3:
                raise fault(Reason.RUN_NOT_FOUND, "It is gone.", run="fails")
            if request.run == "hangs" and number == 1:
                await self._hang()
            if request.run == "clings" and number == 1:
                await self._cling()
            self.sent += 1
            yield read_pb2.ReadViewResponse(removed_paths=[str(number)])

    async def _hang(self):
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()

    async def _cling(self):
        try:
            await self._hang()
        finally:
            await asyncio.sleep(CLEANUP_S)

    async def _embitter(self):
        try:
            await self._hang()
        except asyncio.CancelledError:
            raise fault(Reason.RUN_NOT_FOUND, "It failed to clean up.", run="bitter") from None


class Called:
    """A server, and a caller of it."""

    def __init__(self, server: RunningServer, probe: Probe, peer: Peer) -> None:
        self.server, self.probe, self.peer = server, probe, peer
        self.stub = store_service_pb2_grpc.StoreServiceStub(peer.channel)

    async def run(self, run: str, **more):
        return await self.peer.call(self.stub.GetRun, registry_pb2.GetRunRequest(project="p", run=run), **more)

    def view(self, run: str, timeout_s: float | None = 10):
        return self.peer.stream(self.stub.ReadView, read_pb2.ReadViewRequest(project="p", run=run), timeout_s)


@contextlib.asynccontextmanager
async def serving(tmp_path, is_local: bool, **peer):
    probe = Probe()

    def register(server) -> None:
        store_service_pb2_grpc.add_StoreServiceServicer_to_server(probe, server)

    server = RunningServer(
        Service("store", "turnwright.store.v1.StoreService", register), f"unix:{tmp_path}/s.sock", SECRET, 0.1
    )
    await server.start()
    given = {"token": SECRET, "timeout_s": 10.0, **peer}
    caller = Peer("store", server.address, neighbours={server.address: server.local} if is_local else {}, **given)
    try:
        yield Called(server, probe, caller)
    finally:
        await caller.close()
        await server.stop()


@pytest_asyncio.fixture(params=[False, True], ids=["socket", "process"])
async def called(request, tmp_path):
    async with serving(tmp_path, request.param) as made:
        yield made


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def test_a_handler_knows_who_calls_and_the_caller_stays_who_it_is(called):
    assert (await called.run("caller")).run.run == "operator SYSTEM"
    with pytest.raises(LookupError):
        current_caller()


@pytest.mark.parametrize("is_local", [False, True])
async def test_a_lower_tier_goes_along(tmp_path, is_local):
    async with serving(tmp_path, is_local, tier=Tier.CLIENT) as called:
        assert (await called.run("caller")).run.run == "operator CLIENT"


@pytest.mark.parametrize("is_local", [False, True])
async def test_a_wrong_token_is_refused(tmp_path, is_local):
    async with serving(tmp_path, is_local, token="wrong") as called:
        assert (await refused(called.run("caller"))).reason is Reason.UNAUTHENTICATED
        assert (await refused(anext(called.view("counts")))).reason is Reason.UNAUTHENTICATED


async def test_an_error_arrives_with_its_reason(called):
    error = await refused(called.run("refused"))
    assert (error.reason, error.message, error.metadata) == (
        Reason.RUN_NOT_FOUND,
        "There is no such run.",
        {"run": "refused"},
    )


async def test_the_text_of_an_unexpected_error_stays_behind(called):
    error = await refused(called.run("broken"))
    assert (error.reason, "secret" in error.message) == (Reason.INTERNAL, False)


async def test_a_call_ends_at_its_deadline_and_so_does_its_handler(called):
    assert (await refused(called.run("hangs", timeout_s=0.2))).reason is Reason.SERVICE_UNAVAILABLE
    await asyncio.wait_for(called.probe.cancelled.wait(), 5)


async def test_a_caller_that_leaves_ends_its_handler(called):
    task = asyncio.create_task(called.run("hangs"))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(called.probe.cancelled.wait(), 5)


@pytest.mark.parametrize("run", ["hangs", "clings", "bitter"])
async def test_a_caller_is_cancelled_however_its_handler_ends(called, run):
    task = asyncio.create_task(called.run(run))
    await asyncio.sleep(0.1)
    task.cancel()
    async with asyncio.timeout(CLEANUP_S / 2):
        await asyncio.wait((task,))
    assert task.cancelled()
    await asyncio.wait_for(called.probe.cancelled.wait(), 5)


@pytest.mark.parametrize("run", ["clings", "bitter"])
async def test_a_deadline_holds_however_the_handler_ends(called, run):
    async with asyncio.timeout(CLEANUP_S / 2):
        error = await refused(called.run(run, timeout_s=0.2))
    assert error.reason is Reason.SERVICE_UNAVAILABLE


async def test_a_stream_that_is_late_does_not_wait_for_its_handler(called):
    stream = called.view("clings", timeout_s=0.3)
    await anext(stream)
    async with asyncio.timeout(CLEANUP_S / 2):
        assert (await refused(anext(stream))).reason is Reason.SERVICE_UNAVAILABLE


async def test_a_stream_comes_in_order_and_whole(called):
    numbers = [message.removed_paths[0] async for message in called.view("counts")]
    assert numbers == [str(number) for number in range(1000)]


async def test_a_stream_that_fails_gives_what_came_before(called):
    stream = called.view("fails")
    assert [(await anext(stream)).removed_paths[0] for _ in range(3)] == ["0", "1", "2"]
    assert (await refused(anext(stream))).reason is Reason.RUN_NOT_FOUND


async def test_a_stream_ends_at_its_deadline(called):
    stream = called.view("hangs", timeout_s=0.3)
    await anext(stream)
    assert (await refused(anext(stream))).reason is Reason.SERVICE_UNAVAILABLE
    await asyncio.wait_for(called.probe.cancelled.wait(), 5)


async def test_a_stream_that_nobody_reads_on_is_ended(called):
    async with contextlib.aclosing(called.view("hangs")) as stream:
        assert (await anext(stream)).removed_paths == ["0"]
    await asyncio.wait_for(called.probe.cancelled.wait(), 5)


async def test_a_server_that_stops_ends_what_is_under_way_and_takes_no_more(called):
    call = asyncio.create_task(called.run("hangs"))
    stream = called.view("hangs", timeout_s=None)
    await anext(stream)
    await called.server.stop()
    assert (await refused(call)).reason is Reason.SERVICE_UNAVAILABLE
    assert (await refused(anext(stream))).reason is Reason.SERVICE_UNAVAILABLE
    assert (await refused(called.run("caller", timeout_s=0.5))).reason is Reason.SERVICE_UNAVAILABLE


async def test_a_slow_reader_holds_the_handler_back(tmp_path):
    """Over a socket the same is done by windows of bytes."""
    async with serving(tmp_path, True) as called:
        stream = called.view("counts")
        await anext(stream)
        await asyncio.sleep(0.1)
        assert called.probe.sent <= MESSAGES_AHEAD + 3
        await stream.aclose()

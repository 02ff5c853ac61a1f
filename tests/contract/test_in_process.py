"""A call is the same call whichever way it goes: as an rpc, or within one process."""

from __future__ import annotations

import asyncio
import contextlib

import grpc
import pytest
import pytest_asyncio
from turnwright.runs.v1 import run_service_pb2, run_service_pb2_grpc
from turnwright.store.v1 import read_pb2, store_service_pb2_grpc
from turnwright.types.v1 import run_pb2
from turnwright_values.types import Tier

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.rpc.headers import call_metadata
from turnwright_kit.identity.caller import current_caller
from turnwright_kit.in_process import MESSAGES_AHEAD
from turnwright_kit.peer import Peer
from turnwright_kit.server import RunningServer
from turnwright_kit.service import Service

pytestmark = pytest.mark.asyncio

SECRET = "s3cret"


class Probe(run_service_pb2_grpc.RunServiceServicer, store_service_pb2_grpc.StoreServiceServicer):
    """A store that does what a test asks for by the name of a run, and remembers what became of it."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.let_go = asyncio.Event()
        """Lets a handler that clings end."""
        self.sent = 0
        self.left_s = None

    async def GetRun(self, request, context):
        match request.run:
            case "caller":
                caller = current_caller()
                return run_service_pb2.GetRunResponse(run=run_pb2.Run(run=f"{caller.name} {caller.tier.name}"))
            case "refused":
                raise fault(Reason.RUN_NOT_FOUND, "There is no such run.", run="refused")
            case "broken":
                raise ZeroDivisionError("a secret")
            case "clings":
                return await self._cling()
            case "bitter":
                return await self._embitter()
            case "context":
                self.left_s = context.time_remaining()
                await context.send_initial_metadata((("k", "v"),))
                return run_service_pb2.GetRunResponse(run=run_pb2.Run(run="answered"))
            case "aborts":
                with contextlib.suppress(grpc.aio.AbortError):
                    await context.abort(grpc.StatusCode.ABORTED, "given up", (("k", "v"),))
                await context.abort(grpc.StatusCode.NOT_FOUND, "given up again")
            case "passes":
                await context.abort(grpc.StatusCode.ABORTED, "given up")
        return await self._hang()

    async def ReadView(self, request, context):
        if request.run == "aborts":
            await context.abort(grpc.StatusCode.ABORTED, "given up", (("k", "v"),))
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
            self.begun.set()
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()

    async def _cling(self):
        try:
            await self._hang()
        finally:
            await self.let_go.wait()

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
        self.runs = run_service_pb2_grpc.RunServiceStub(peer.channel)

    async def run(self, run: str, **more):
        return await self.peer.call(self.runs.GetRun, run_service_pb2.GetRunRequest(project="p", run=run), **more)

    def view(self, run: str, timeout_s: float | None = 10):
        return self.peer.stream(self.stub.ReadView, read_pb2.ReadViewRequest(project="p", run=run), timeout_s)

    async def first(self, run: str):
        async with self.view(run) as stream:
            return await anext(stream)


@contextlib.asynccontextmanager
async def serving(tmp_path, way: str, **peer):
    probe = Probe()

    def register(server) -> None:
        run_service_pb2_grpc.add_RunServiceServicer_to_server(probe, server)
        store_service_pb2_grpc.add_StoreServiceServicer_to_server(probe, server)

    server = RunningServer(
        Service("store", "turnwright.store.v1.StoreService", register, codecs=dict),
        f"unix:{tmp_path}/s.sock",
        SECRET,
        0.1,
    )
    await server.start()
    given = {"token": SECRET, "timeout_s": 10.0, **peer}
    local_servers = {server.address: server.local} if way == "process" else {}
    caller = Peer("store", server.address, local_servers=local_servers, **given)
    try:
        yield Called(server, probe, caller)
    finally:
        probe.let_go.set()
        await caller.close()
        await server.stop()


WAYS = ("socket", "process")


@pytest_asyncio.fixture(params=WAYS)
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


@pytest.mark.parametrize("way", WAYS)
async def test_a_lower_tier_goes_along(tmp_path, way):
    async with serving(tmp_path, way, tier=Tier.CLIENT) as called:
        assert (await called.run("caller")).run.run == "operator CLIENT"


@pytest.mark.parametrize("way", WAYS)
async def test_a_wrong_token_is_refused(tmp_path, way):
    async with serving(tmp_path, way, token="wrong") as called:
        assert (await refused(called.run("caller"))).reason is Reason.UNAUTHENTICATED
        assert (await refused(called.first("counts"))).reason is Reason.UNAUTHENTICATED


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
    await asyncio.wait_for(called.probe.cancelled.wait(), 60)


async def test_a_caller_that_leaves_ends_its_handler(called):
    task = asyncio.create_task(called.run("hangs"))
    await asyncio.wait_for(called.probe.begun.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(called.probe.cancelled.wait(), 60)


@pytest.mark.parametrize("run", ["hangs", "clings", "bitter"])
async def test_a_caller_is_cancelled_however_its_handler_ends(called, run):
    task = asyncio.create_task(called.run(run))
    await asyncio.wait_for(called.probe.begun.wait(), 60)
    task.cancel()
    async with asyncio.timeout(60):
        await asyncio.wait((task,))
    assert task.cancelled()
    await asyncio.wait_for(called.probe.cancelled.wait(), 60)


@pytest.mark.parametrize("run", ["clings", "bitter"])
async def test_a_deadline_holds_however_the_handler_ends(called, run):
    async with asyncio.timeout(60):
        error = await refused(called.run(run, timeout_s=0.2))
    assert error.reason is Reason.SERVICE_UNAVAILABLE


async def late(called, run: str) -> TurnwrightError:
    """What ends a stream at its deadline, once something has come before that."""
    for timeout_s in (0.3, 5.0, 50.0):
        async with called.view(run, timeout_s=timeout_s) as stream:
            with contextlib.suppress(TurnwrightError):
                await anext(stream)
                async with asyncio.timeout(60):
                    return await refused(anext(stream))
    raise AssertionError("nothing comes")


async def test_a_stream_that_is_late_does_not_wait_for_its_handler(called):
    assert (await late(called, "clings")).reason is Reason.SERVICE_UNAVAILABLE


async def test_a_stream_comes_in_order_and_whole(called):
    async with called.view("counts") as stream:
        numbers = [message.removed_paths[0] async for message in stream]
    assert numbers == [str(number) for number in range(1000)]


async def test_a_stream_that_fails_gives_what_came_before(called):
    async with called.view("fails") as stream:
        assert [(await anext(stream)).removed_paths[0] for _ in range(3)] == ["0", "1", "2"]
        assert (await refused(anext(stream))).reason is Reason.RUN_NOT_FOUND


async def test_a_stream_ends_at_its_deadline(called):
    assert (await late(called, "hangs")).reason is Reason.SERVICE_UNAVAILABLE
    await asyncio.wait_for(called.probe.cancelled.wait(), 60)


async def test_a_stream_that_nobody_reads_on_is_ended(called):
    async with called.view("hangs") as stream:
        assert (await anext(stream)).removed_paths == ["0"]
    await asyncio.wait_for(called.probe.cancelled.wait(), 60)


async def test_a_stream_is_read_only_while_it_is_held(called):
    with pytest.raises(TypeError):
        await anext(called.view("counts"))
    async with called.view("counts") as stream:
        await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_a_server_that_stops_ends_what_is_under_way_and_takes_no_more(called):
    call = asyncio.create_task(called.run("hangs"))
    async with called.view("hangs", timeout_s=None) as stream:
        await anext(stream)
        await called.server.stop()
        assert (await refused(call)).reason is Reason.DRAINING
        assert (await refused(anext(stream))).reason is Reason.DRAINING
    assert (await refused(called.run("caller", timeout_s=0.5))).reason is Reason.SERVICE_UNAVAILABLE


async def test_a_slow_reader_holds_the_handler_back(tmp_path):
    """Over a socket the same is done by windows of bytes."""
    async with serving(tmp_path, "process") as called, called.view("counts") as stream:
        await anext(stream)
        await asyncio.sleep(0.1)
        assert called.probe.sent <= MESSAGES_AHEAD + 3


@pytest.mark.parametrize(("timeout_s", "low", "high"), [(600.0, 11.0, 601.0), (None, 0.0, 11.0)])
async def test_a_handler_knows_how_long_its_caller_waits(called, timeout_s, low, high):
    await called.run("context", timeout_s=timeout_s)
    assert low < called.probe.left_s <= high


async def test_a_handler_of_a_caller_that_waits_for_as_long_as_it_takes_has_no_end(called):
    asked = run_service_pb2.GetRunRequest(project="p", run="context")
    answer = await called.runs.GetRun(asked, metadata=call_metadata(SECRET))
    assert (answer.run.run, called.probe.left_s) == ("answered", None)


@pytest.mark.parametrize(
    ("run", "code", "details"),
    [
        ("aborts", grpc.StatusCode.ABORTED, "given up"),
        ("passes", grpc.StatusCode.ABORTED, "given up"),
    ],
)
async def test_a_handler_ends_its_call_with_a_code(called, run, code, details):
    asked = run_service_pb2.GetRunRequest(project="p", run=run)
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await called.runs.GetRun(asked, metadata=call_metadata(SECRET), timeout=60)
    assert (ended.value.code(), ended.value.details()) == (code, details)


async def test_a_handler_of_a_stream_ends_its_call_with_a_code(called):
    asked = read_pb2.ReadViewRequest(project="p", run="aborts")
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await anext(aiter(called.stub.ReadView(asked, metadata=call_metadata(SECRET), timeout=60)))
    assert (ended.value.code(), ended.value.details()) == (grpc.StatusCode.ABORTED, "given up")
    assert ("k", "v") in tuple(ended.value.trailing_metadata())

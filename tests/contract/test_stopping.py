"""What callers hear of a service that stops."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from turnwright.runs.v1 import run_service_pb2, run_service_pb2_grpc
from turnwright.store.v1 import read_pb2, store_service_pb2_grpc

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_kit.peer import Peer
from turnwright_kit.server import RunningServer, enter_lame_duck
from turnwright_kit.service import Service

pytestmark = pytest.mark.asyncio

SECRET = "s3cret"


class Endless(store_service_pb2_grpc.StoreServiceServicer):
    """A store whose streams last until it stops."""

    def __init__(self) -> None:
        self.is_leaving = asyncio.Event()

    async def ReadView(self, request, context):
        yield read_pb2.ReadViewResponse()
        await self.is_leaving.wait()
        raise fault(Reason.DRAINING, "The store is shutting down.")


async def test_a_stream_is_ended_when_its_client_knows_that_it_has_to_go(tmp_path):
    """Otherwise the connection may be closed while the client still answers, and its stream ends with a broken pipe."""
    endless = Endless()
    states = []

    async def drain() -> None:
        states.append(peer.channel.get_state())
        endless.is_leaving.set()

    def register(server) -> None:
        store_service_pb2_grpc.add_StoreServiceServicer_to_server(endless, server)

    service = Service("store", "turnwright.store.v1.StoreService", register, drain=drain)
    server = RunningServer(service, f"unix:{tmp_path}/store.sock", SECRET, 5)
    await server.start()
    peer = Peer("store", server.address, SECRET, 10)
    stub = store_service_pb2_grpc.StoreServiceStub(peer.channel)
    async with peer.stream(stub.ReadView, read_pb2.ReadViewRequest(), 10) as stream:
        await anext(stream)
        assert peer.channel.get_state() is grpc.ChannelConnectivity.READY
        stopping = asyncio.ensure_future(server.stop())
        with pytest.raises(TurnwrightError) as told:
            await anext(stream)
    await stopping
    await peer.close()
    assert states == [grpc.ChannelConnectivity.IDLE]
    assert told.value.reason is Reason.DRAINING


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", ["SERVING", "NOT_SERVING"]),
        ("turnwright.store.v1.StoreService", ["SERVING", "NOT_SERVING"]),
        ("some.Service", ["SERVICE_UNKNOWN"]),
    ],
)
async def test_who_watches_the_health_is_told_of_the_stop_and_does_not_hold_it_up(tmp_path, name, told):
    service = Service("store", "turnwright.store.v1.StoreService", lambda _: None)
    server = RunningServer(service, f"unix:{tmp_path}/store.sock", SECRET, 60)
    await server.start()
    heard = []
    async with grpc.aio.insecure_channel(server.address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=name), timeout=30)
        answers = aiter(watch)
        heard.append((await anext(answers)).status)
        async with asyncio.timeout(60):
            await server.stop()
        heard.extend([answer.status async for answer in answers])
        assert await watch.code() is grpc.StatusCode.OK
    assert [health_pb2.HealthCheckResponse.ServingStatus.Name(status) for status in heard] == told


async def test_the_health_of_every_name_is_listed(tmp_path):
    server = RunningServer(Service("store", "some.Service", lambda _: None), f"unix:{tmp_path}/store.sock", SECRET, 5)
    await server.start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        listed = await health_pb2_grpc.HealthStub(channel).List(health_pb2.HealthListRequest(), timeout=10)
    await server.stop()
    serves = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)
    assert dict(listed.statuses) == {"": serves, "some.Service": serves, "liveness": serves}


class Slow(run_service_pb2_grpc.RunServiceServicer, store_service_pb2_grpc.StoreServiceServicer):
    """A store that answers when it is told to; streams and single answers."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_answer = asyncio.Event()

    async def GetRun(self, request, context):
        self.begun += 1
        await self.may_answer.wait()
        return run_service_pb2.GetRunResponse()

    async def ReadView(self, request, context):
        self.begun += 1
        yield read_pb2.ReadViewResponse()
        await self.may_answer.wait()


@contextlib.asynccontextmanager
async def slow_server(tmp_path, drain_s: float):
    slow = Slow()

    def register(server) -> None:
        run_service_pb2_grpc.add_RunServiceServicer_to_server(slow, server)
        store_service_pb2_grpc.add_StoreServiceServicer_to_server(slow, server)

    service = Service("store", "turnwright.store.v1.StoreService", register)
    server = RunningServer(service, f"unix:{tmp_path}/store.sock", SECRET, drain_s)
    await server.start()
    yield slow, server
    await server.stop()


async def eventually(condition) -> None:
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came")


def _calling(peer, kind: str):
    stub = store_service_pb2_grpc.StoreServiceStub(peer.channel)

    async def read() -> None:
        async with peer.stream(stub.ReadView, read_pb2.ReadViewRequest(), 60) as messages:
            async for _ in messages:
                pass

    call = (
        read()
        if kind == "stream"
        else peer.call(run_service_pb2_grpc.RunServiceStub(peer.channel).GetRun, run_service_pb2.GetRunRequest(), 60)
    )
    return asyncio.create_task(call)


@pytest.mark.parametrize("kind", ["answer", "stream"])
@pytest.mark.parametrize("where", ["network", "process"])
async def test_a_call_that_is_late_when_its_service_stops_hears_that_it_shuts_down(tmp_path, kind, where):
    async with slow_server(tmp_path, 0.1) as (slow, server):
        local_servers = {server.address: server.local} if where == "process" else None
        peer = Peer("store", server.address, SECRET, 60, local_servers=local_servers)
        calls = [_calling(peer, kind) for _ in range(8)]
        await eventually(lambda: slow.begun == len(calls))
        await server.stop()
        heard = await asyncio.gather(*calls, return_exceptions=True)
        await peer.close()
    assert [getattr(error, "reason", error) for error in heard] == [Reason.DRAINING] * len(calls)


@pytest.mark.parametrize("kind", ["answer", "stream"])
async def test_a_call_that_is_done_in_time_is_answered_while_its_service_stops(tmp_path, kind):
    async with slow_server(tmp_path, 60) as (slow, server):
        peer = Peer("store", server.address, SECRET, 60)
        calls = [_calling(peer, kind) for _ in range(8)]
        await eventually(lambda: slow.begun == len(calls))
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0)
        slow.may_answer.set()
        heard = await asyncio.gather(*calls, return_exceptions=True)
        await stopping
        await peer.close()
    assert not [error for error in heard if isinstance(error, Exception)]


async def test_calls_that_come_while_a_service_stops_are_answered_or_may_come_again(tmp_path):
    async with slow_server(tmp_path, 0.05) as (slow, server):
        slow.may_answer.set()
        has_stopped, heard = asyncio.Event(), Counter()

        async def hammer() -> None:
            peer = Peer("store", server.address, SECRET, 60)
            while not has_stopped.is_set():
                ended = await asyncio.gather(_calling(peer, "answer"), return_exceptions=True)
                heard[getattr(ended[0], "reason", "answered")] += 1
            await peer.close()

        hammers = [asyncio.create_task(hammer()) for _ in range(16)]
        await eventually(lambda: slow.begun > 200)
        await server.stop()
        has_stopped.set()
        await asyncio.gather(*hammers)
    assert set(heard) <= {"answered", Reason.DRAINING, Reason.SERVICE_UNAVAILABLE}


async def test_a_service_that_leaves_says_so_and_goes_on_serving(tmp_path):
    async with slow_server(tmp_path, 5) as (slow, server):
        slow.may_answer.set()
        leaving = asyncio.create_task(enter_lame_duck([server], 60))
        peer = Peer("store", server.address, SECRET, 30)
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=60)
            while (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING:
                pass
            watch.cancel()
        await _calling(peer, "answer")
        assert not leaving.done()
        leaving.cancel()
        await peer.close()

"""What callers hear of a service that stops."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from turnwright.store.v1 import read_pb2, store_service_pb2_grpc

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.kit.peer import Peer
from turnwright_core.kit.server import RunningServer, Service

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
    assert dict(listed.statuses) == {"": serves, "some.Service": serves}

"""A stream of the store that the executor mounts: its caller, its deadline, and its end are those of the client's call."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio
from turnwright.turns.v1 import turn_service_pb2, turn_service_pb2_grpc
from turnwright_values.types import Grant, GrantRole, Tier

from services import token_for
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_executor.rpc.forwarding import OpenWatches
from turnwright_executor.rpc.mounting import mounts
from turnwright_kit.identity.caller import current_caller
from turnwright_kit.identity.policy import Policy, PolicySnapshot
from turnwright_kit.peer import Peer
from turnwright_kit.server import RunningServer
from turnwright_kit.service import Service

pytestmark = pytest.mark.asyncio

SECRET = "s3cret"
REQUEST = turn_service_pb2.ReadPacketRequest(project="p", run="r", turn=3)


class Store(turn_service_pb2_grpc.TurnServiceServicer):
    """Sends one part of a packet, and the next ones when a test says so."""

    def __init__(self) -> None:
        self.calls, self.go_on, self.left = [], asyncio.Event(), asyncio.Event()

    async def ReadPacket(self, request, context):
        self.calls.append((request, current_caller(), context.time_remaining()))
        if request.turn > 3:
            raise fault(Reason.TURN_NOT_FOUND, "There is no such turn.")
        try:
            yield turn_service_pb2.ReadPacketResponse(text="a")
            await self.go_on.wait()
            yield turn_service_pb2.ReadPacketResponse(text="b", last=True)
        finally:
            self.left.set()


@pytest_asyncio.fixture
async def stack(tmp_path):
    """The store, the watches of the executor, and the executor's client."""
    store, watches, policy = Store(), OpenWatches(60.0), Policy(lambda: 0)
    policy.replace(PolicySnapshot(1, [Grant("p", "user:ann", GrantRole.VIEWER)]))

    async def served(name, register) -> RunningServer:
        grpc_name = "turnwright.turns.v1.TurnService"
        service = Service(name, grpc_name, register, policy=policy)
        server = RunningServer(service, f"unix:{tmp_path}/{name}.sock", SECRET, 0.1)
        await server.start()
        return server

    behind = await served(
        "store", lambda server: turn_service_pb2_grpc.add_TurnServiceServicer_to_server(store, server)
    )
    to_store = Peer("store", behind.address, SECRET, 10.0, service="executor")
    front = await served("executor", lambda server: server.add_generic_rpc_handlers(mounts(to_store, {}, watches)))
    client = Peer("executor", front.address, token_for("ann", secret=SECRET), 10.0)
    yield store, watches, client
    for one in (client, to_store):
        await one.close()
    for server in (front, behind):
        await server.stop()


def reading(client, timeout_s=None, turn=3):
    request = turn_service_pb2.ReadPacketRequest(project="p", run="r", turn=turn)
    return client.stream(turn_service_pb2_grpc.TurnServiceStub(client.channel).ReadPacket, request, timeout_s)


async def test_the_store_hears_at_which_tier_is_asked_and_until_when(stack):
    store, _, client = stack
    store.go_on.set()
    for timeout_s in (None, 60.0):
        async with reading(client, timeout_s) as parts:
            assert [part.text async for part in parts] == ["a", "b"]
    assert [request for request, _, _ in store.calls] == [REQUEST] * 2
    # For the client, whose calls the executor has counted.
    assert {(caller.name, caller.tier, caller.by, caller.is_counted) for _, caller, _ in store.calls} == {
        ("ann", Tier.CLIENT, "executor", False)
    }
    (_, _, without), (_, _, left_s) = store.calls
    assert without is None
    # On its way a timeout is rounded up.
    assert 0 < left_s < 90


async def test_an_error_of_the_store_is_that_of_the_call(stack):
    _, _, client = stack
    async with reading(client, turn=4) as parts:
        with pytest.raises(TurnwrightError) as refused:
            await anext(parts)
    assert refused.value.reason is Reason.TURN_NOT_FOUND


async def test_the_call_of_the_store_ends_when_the_client_leaves(stack):
    store, _, client = stack
    async with reading(client) as parts:
        assert (await anext(parts)).text == "a"
    async with asyncio.timeout(60):
        await store.left.wait()


async def test_a_stream_ends_when_the_executor_is_drained(stack):
    store, watches, client = stack
    async with reading(client) as parts:
        assert (await anext(parts)).text == "a"
        watches.close()
        with pytest.raises(TurnwrightError) as ended:
            await anext(parts)
    assert ended.value.reason is Reason.DRAINING
    async with asyncio.timeout(60):
        await store.left.wait()

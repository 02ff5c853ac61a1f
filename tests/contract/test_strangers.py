"""Calls without a token: refused by their metadata, before anything that they bring is read."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from turnwright_core.errors import Reason
from turnwright_core.limits import MESSAGE_BYTES_MAX
from turnwright_core.rpc.errors import from_rpc
from turnwright_core.rpc.headers import call_metadata
from turnwright_kit.guard import PROBES_MAX
from turnwright_kit.server import RunningServer
from turnwright_provider.config import ProviderSettings
from turnwright_provider.wiring import build

SECRET = "the-secret-of-the-deployment"
UNARY = "/turnwright.provider.v1.ProviderService/ListVendors"
STREAM = "/turnwright.provider.v1.ProviderService/Generate"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
LARGE = bytes(MESSAGE_BYTES_MAX - 1024)
OPTIONS = (("grpc.max_send_message_length", MESSAGE_BYTES_MAX), ("grpc.use_local_subchannel_pool", 1))


@pytest_asyncio.fixture
async def channel(tmp_path: Path) -> AsyncIterator[grpc.aio.Channel]:
    server = RunningServer(
        build(ProviderSettings(home=tmp_path, token=SECRET), SECRET), "127.0.0.1:0", SECRET, drain_s=0.5
    )
    await server.start()
    async with grpc.aio.insecure_channel(server.address, options=OPTIONS) as opened:
        yield opened
    await server.stop()


async def failure(call: grpc.aio.StreamStreamCall) -> Reason:
    """Why a call ended that answers nothing."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call.read()
    return from_rpc(refused.value, "provider", "").reason


@pytest.mark.asyncio
@pytest.mark.parametrize("method", [UNARY, STREAM, REFLECTION])
@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", "Bearer wrong"),),
        (("authorization", "Basic eDp5"),),
        (("authorization", "Bearer tw1.system.operator.0000"),),
    ],
    ids=["no-token", "wrong", "basic", "forged"],
)
async def test_a_stranger_is_refused_before_a_message_was_sent(channel, method, metadata):
    # The call is begun and nothing is ever written to it: only its metadata can be what is refused.
    assert await failure(channel.stream_stream(method)(metadata=metadata)) is Reason.UNAUTHENTICATED


@pytest.mark.asyncio
async def test_a_caller_of_too_low_a_tier_is_refused_before_a_message_was_sent(channel):
    metadata = (*call_metadata(SECRET), ("turnwright-tier", "nonsense"))
    assert await failure(channel.stream_stream(UNARY)(metadata=metadata)) is Reason.INVALID_FIELD


@pytest.mark.asyncio
@pytest.mark.parametrize("method", [CHECK, WATCH])
@pytest.mark.parametrize(
    ("message", "reason"), [(LARGE, Reason.LIMIT_EXCEEDED), (b"\xff\xff\xff", Reason.INVALID_FIELD)]
)
async def test_a_stranger_may_ask_for_health_in_few_bytes_only(channel, method, message, reason):
    call = channel.stream_stream(method)()
    await call.write(message)
    assert await failure(call) is reason


@pytest.mark.asyncio
async def test_a_stranger_that_sends_nothing_holds_no_place_for_long(channel):
    silent = [channel.stream_stream(CHECK)() for _ in range(3 * PROBES_MAX)]
    assert {await failure(call) for call in silent} == {Reason.UNAUTHENTICATED}

    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.asyncio
@pytest.mark.parametrize("metadata", [(), call_metadata(SECRET)], ids=["stranger", "known"])
async def test_health_is_reported_to_anybody(channel, metadata):
    stub = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest()
    checked = await stub.Check(request, metadata=metadata)
    watch = stub.Watch(request, metadata=metadata)

    assert checked.status == (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()


def resident_mb(process: asyncio.subprocess.Process) -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


@pytest.mark.asyncio
@pytest.mark.parametrize(("method", "mb_max"), [(UNARY, 100), (CHECK, 400)], ids=["a-call", "health"])
async def test_thirty_large_messages_of_strangers_leave_a_service_small(tmp_path, method, mb_max):
    # Read, they would take more than 900 MB, and twice as much once they are parsed.
    address = f"unix:{tmp_path}/provider.sock"
    environment = {**os.environ, "TURNWRIGHT_HOME": str(tmp_path), "TURNWRIGHT_LISTEN": address}
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "turnwright_provider", env=environment)

    async def refused() -> grpc.StatusCode:
        async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await channel.unary_unary(method)(LARGE)
            return error.value.code()

    try:
        async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
            await channel.channel_ready()
        begin_mb = resident_mb(process)
        codes = await asyncio.gather(*(refused() for _ in range(30)))
        grown_mb = resident_mb(process) - begin_mb
    finally:
        process.terminate()
        await process.wait()

    assert grpc.StatusCode.OK not in codes
    assert grown_mb < mb_max

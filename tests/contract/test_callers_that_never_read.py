"""Clients that open calls and never read: what a server holds for them is bounded, for each rpc of the contract."""

from __future__ import annotations

import asyncio
import contextlib
from functools import cache
from typing import ClassVar

import grpc
import pytest
from google.protobuf import empty_pb2
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from msgspec.structs import replace
from turnwright.assembler.v1 import assembler_service_pb2
from turnwright.entries.v1 import entry_service_pb2
from turnwright.executor.v1 import executor_service_pb2
from turnwright.provider.v1 import provider_service_pb2
from turnwright.settings.v1 import settings_service_pb2
from turnwright.store.v1 import store_service_pb2
from turnwright.types.v1 import access_pb2, settings_pb2
from turnwright_values.types import Grant, GrantRole

from raw_http2 import NeverReads, varint
from services import SECRET, running, token_for
from turnwright_core.errors import Reason
from turnwright_core.limits import STOCK_MESSAGE_BYTES_MAX
from turnwright_core.rpc.errors import from_rpc
from turnwright_core.rpc.headers import call_metadata
from turnwright_executor.rpc.mounting import MOUNTED
from turnwright_kit.access import access_of
from turnwright_kit.caller_ledger import CALLERS_PER_CONNECTION, CallerLimits
from turnwright_kit.identity.policy import EVERYBODY, Policy, PolicySnapshot
from turnwright_kit.server import RunningServer
from turnwright_kit.service import Service
from turnwright_kit.settings import Settings

MiB = 1024 * 1024
PAGE_BYTES = 2 * MiB
UNSENT_BYTES_MAX = 2 * STOCK_MESSAGE_BYTES_MAX
CALLS_MAX = 6
WAIT_S = 30
PROJECT = "p"

RPCS = {
    f"/{service.full_name}/{rpc.name}": rpc
    for file in (
        assembler_service_pb2, executor_service_pb2, provider_service_pb2, settings_service_pb2, store_service_pb2
    )
    for service in (*file.DESCRIPTOR.services_by_name.values(), *MOUNTED)
    for rpc in service.methods
}  # fmt: skip


CALLED = [method for method, rpc in RPCS.items() if access_of(rpc).right != access_pb2.RIGHT_SERVICE]
"""Those that are not for services, who are not counted."""

GET = "/turnwright.store.v1.StoreService/GetEntries"
LIST = "/turnwright.turns.v1.TurnService/ListLoops"
WATCH = "/turnwright.executor.v1.ExecutorService/WatchRun"

HEAD = b"\xfa\xff\xff\xff\x0f"
"""The tag of a field that no message has, with a length: whoever parses it keeps it, and sends it again."""


@cache
def request_to(method: str) -> bytes:
    """A request about the project in which everybody may do everything."""
    request = GetMessageClass(RPCS[method].input_type)()
    if "task" in (fields := request.DESCRIPTOR.fields_by_name):
        request.task.project = PROJECT
    elif "project" in fields and fields["project"].message_type is None:
        request.project = PROJECT
    return request.SerializeToString()


@cache
def token_of(principal: str, audience: str = "store") -> tuple[tuple[str, str], ...]:
    return call_metadata(token_for(principal, audience=audience))


class Pages:
    """Every rpc of the contract: each answers with `size` bytes, and a stream with such messages without an end."""

    def __init__(self) -> None:
        self.size = PAGE_BYTES
        self.begun = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def register(self, server) -> None:
        for service in {method[1:].rpartition("/")[0] for method in RPCS}:
            handlers = {
                method.rpartition("/")[2]: self.handler(rpc)
                for method, rpc in RPCS.items()
                if method.startswith(f"/{service}/")
            }
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))

    def handler(self, rpc) -> grpc.RpcMethodHandler:
        def page():
            return empty_pb2.Empty.FromString(HEAD + varint(self.size) + bytes(self.size))

        async def answer(_request, _context):
            self.begun += 1
            # As work does, it lets other calls begin.
            await asyncio.sleep(0.001)
            await self.may_answer.wait()
            return page()

        async def stream(_request, _context):
            self.begun += 1
            while True:
                yield page()

        codecs = {
            "request_deserializer": GetMessageClass(rpc.input_type).FromString,
            "response_serializer": empty_pb2.Empty.SerializeToString,
        }
        if rpc.client_streaming:
            return grpc.stream_unary_rpc_method_handler(answer, **codecs)
        if rpc.server_streaming:
            return grpc.unary_stream_rpc_method_handler(stream, **codecs)
        return grpc.unary_unary_rpc_method_handler(answer, **codecs)


class Limited(Settings):
    """Settings with another time for which a call counts as a largest answer."""

    presumed_s: ClassVar[float]

    @property
    def caller_limits(self) -> CallerLimits:
        return replace(super().caller_limits, presumed_s=self.presumed_s)


class Briefly(Limited):
    """Who has to wait for callers that never read is refused at once."""

    presumed_s = 0.01


class ForLong(Limited):
    presumed_s = 600.0


@contextlib.asynccontextmanager
async def pages(tmp_path, kind=Settings, **settings):
    made, policy = Pages(), Policy(lambda: 0)
    everybody = [Grant(PROJECT, EVERYBODY, GrantRole.OWNER), Grant("", EVERYBODY, GrantRole.OPERATOR)]
    policy.replace(PolicySnapshot(1, everybody))
    service = Service(
        "store",
        "turnwright.store.v1.StoreService",
        made.register,
        connection_calls_max=50,
        settings=kind(home=tmp_path, **settings),
        policy=policy,
    )
    server = RunningServer(service, "127.0.0.1:0", SECRET, 0.1)
    await server.start()
    try:
        yield made, server.address
    finally:
        await server.stop()


async def settled(caller: NeverReads, calls: int) -> int:
    """How many calls the server holds once it has begun to answer, or refused, each of them."""
    async with asyncio.timeout(WAIT_S):
        while len(caller.answered) < calls:  # noqa: ASYNC110 - what a server does not send is told to nobody
            await asyncio.sleep(0.01)
    return calls - len(caller.ended)


@pytest.mark.asyncio
async def test_no_rpc_holds_more_for_a_client_that_never_reads_than_the_limit(tmp_path):
    assert len(CALLED) > 50
    settings = {"caller_unsent_bytes_max": UNSENT_BYTES_MAX}
    wrong = {}
    async with pages(tmp_path, Briefly, **settings) as (served, address):
        for number, method in enumerate(CALLED):
            before = served.begun
            caller = await NeverReads.connect(address)
            # One after the other: each finds what the ones before have left.
            for sent in range(1, 6):
                caller.call(method, request_to(method), token_of(f"caller{number}"))
                held = await settled(caller, sent)
            await caller.close()
            # A third answer might not fit any more, so that call is refused before its work.
            if (held, served.begun - before) != (2, 2):
                wrong[method] = (held, served.begun - before)
    assert wrong == {}


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [100, PAGE_BYTES], ids=["small", "large"])
async def test_many_calls_at_once_are_bounded_for_each_rpc_too(tmp_path, size):
    settings = {"caller_calls_max": CALLS_MAX, "caller_streams_max": CALLS_MAX}
    settings["caller_unsent_bytes_max"] = UNSENT_BYTES_MAX
    most = {100: CALLS_MAX, PAGE_BYTES: UNSENT_BYTES_MAX // PAGE_BYTES}[size]
    wrong = {}
    async with pages(tmp_path, Briefly, **settings) as (served, address):
        served.size = size
        for number, method in enumerate(CALLED):
            caller = await NeverReads.connect(address)
            for _ in range(4 * CALLS_MAX):
                caller.call(method, request_to(method), token_of(f"caller{number}"))
            held = await settled(caller, 4 * CALLS_MAX)
            await caller.close()
            if not 0 < held <= most:
                wrong[method] = held
    assert wrong == {}


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [100, PAGE_BYTES], ids=["small", "large"])
@pytest.mark.parametrize("method", [GET, WATCH])
async def test_a_wave_of_calls_is_counted_before_the_work(tmp_path, method, size):
    async with pages(tmp_path, ForLong, caller_unsent_bytes_max=UNSENT_BYTES_MAX) as (served, address):
        served.size = size
        caller = await NeverReads.connect(address)
        for _ in range(40):
            caller.call(method, request_to(method), token_of("mallory"))
        # What a small answer leaves of the room is for others; behind the first message of a stream there is more.
        most = 40 if (method, size) == (GET, 100) else UNSENT_BYTES_MAX // STOCK_MESSAGE_BYTES_MAX
        async with asyncio.timeout(WAIT_S):
            while served.begun < most:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.01)
        async with grpc.aio.insecure_channel(address) as channel:
            for _ in range(20):
                assert await channel.unary_unary(LIST)(request_to(LIST), metadata=token_of("a"))
        assert served.begun == most + 20
        await caller.close()


@pytest.mark.asyncio
async def test_who_reads_waits_for_room_and_is_not_refused(tmp_path):
    async with (
        pages(tmp_path, ForLong, caller_unsent_bytes_max=UNSENT_BYTES_MAX) as (served, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        one = channel.unary_unary(GET)
        many = channel.unary_stream(WATCH)

        read = await asyncio.gather(*(one(request_to(GET), metadata=token_of("alice")) for _ in range(30)))
        assert {len(page) > PAGE_BYTES for page in read} == {True}
        served.size = 100
        assert all(
            await asyncio.gather(*(many(request_to(WATCH), metadata=token_of("alice")).read() for _ in range(10)))
        )


@pytest.mark.asyncio
async def test_a_call_that_waits_for_something_else_takes_no_room(tmp_path):
    async with (
        pages(tmp_path, Briefly, caller_unsent_bytes_max=UNSENT_BYTES_MAX) as (served, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        call = channel.unary_unary(GET)
        served.may_answer.clear()
        calls = [call(request_to(GET), metadata=token_of("alice")) for _ in range(10)]
        async with asyncio.timeout(WAIT_S):
            while served.begun < 10:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.01)
        served.size = 100
        served.may_answer.set()
        assert all(await asyncio.gather(*calls))


@pytest.mark.asyncio
async def test_who_is_refused_is_told_what_to_do_and_others_are_served(tmp_path):
    settings = {"caller_calls_max": 2, "caller_unsent_bytes_max": UNSENT_BYTES_MAX}
    method = GET
    async with pages(tmp_path, **settings) as (served, address):
        served.size = 100
        caller = await NeverReads.connect(address)
        for _ in range(3):
            caller.call(method, request_to(method), token_of("mallory"))
        assert await settled(caller, 3) == 2
        assert caller.streams_max == 50
        async with grpc.aio.insecure_channel(address) as channel:
            call = channel.unary_unary(method)

            async def refused(metadata):
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await call(request_to(GET), metadata=metadata)
                return error.value.code(), from_rpc(error.value, "store", "")

            code, reason = await refused(token_of("mallory"))
            assert (code, reason.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, Reason.QUEUE_FULL)
            assert reason.metadata == {"queue": "calls", "limit": "2"}
            # Another client, services, and probes.
            assert await call(request_to(GET), metadata=token_of("alice"))
            await asyncio.gather(*(call(request_to(GET), metadata=call_metadata(SECRET)) for _ in range(20)))
            health = health_pb2_grpc.HealthStub(channel)
            assert (await health.Check(health_pb2.HealthCheckRequest())).status == 1
            # Who leaves, or reads, has room again.
            await caller.close()
            async with asyncio.timeout(WAIT_S):
                while True:
                    with contextlib.suppress(grpc.aio.AioRpcError):
                        assert await call(request_to(GET), metadata=token_of("mallory"))
                        break
            reading = [call(request_to(GET), metadata=token_of("mallory")) for _ in range(2)]
            await asyncio.gather(*reading)
            assert await call(request_to(GET), metadata=token_of("mallory"))


@pytest.mark.asyncio
async def test_a_connection_is_counted_for_all_its_callers_and_a_stranger_by_it_alone(tmp_path):
    async with pages(tmp_path, caller_calls_max=2) as (_, address):
        many, probes = await NeverReads.connect(address), await NeverReads.connect(address)
        for number in range(20):
            many.call(LIST, request_to(LIST), token_of(f"c{number}"))
            probes.call("/grpc.health.v1.Health/Check", b"", ())
        assert await settled(many, 20) == 2 * CALLERS_PER_CONNECTION
        assert await settled(probes, 20) == 2 * CALLERS_PER_CONNECTION
        async with grpc.aio.insecure_channel(address) as channel:
            assert await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        await many.close()
        await probes.close()


@pytest.mark.asyncio
async def test_large_pages_of_a_run_that_nobody_reads_are_bounded_and_others_are_served(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    limits = {"caller_unsent_bytes_max": UNSENT_BYTES_MAX}
    async with running(tmp_path, store_settings=limits, **limits) as services:
        client, asked = services.client, {"project": services.project, "run": "r"}
        await client.create_run(services.project, "r", settings_pb2.RunSettings(model="m", yolo=True))
        for number in range(10):
            path = {"path": f"{number}.txt"}
            await client.call_tool(services.project, "r", "set", path, f"{number}" * 190_000)
        method = "/turnwright.entries.v1.EntryService/ListEntries"
        request = entry_service_pb2.ListEntriesRequest(**asked)
        for name in ("executor", "store"):
            caller = await NeverReads.connect(services.addresses[name])
            for _ in range(40):
                caller.call(method, request.SerializeToString(), token_of("mallory", name))
            assert 0 < await settled(caller, 40) <= UNSENT_BYTES_MAX // 1_500_000
            async with asyncio.timeout(WAIT_S):
                assert (await client.get_run(services.project, "r")).run.run == "r"
            await caller.close()

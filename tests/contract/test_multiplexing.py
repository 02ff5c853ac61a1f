"""Multiplexed streams: which calls go over one, which are rpcs, and what becomes of both when a stream ends."""

from __future__ import annotations

import asyncio
import contextlib

import grpc
import pytest
import pytest_asyncio
from turnwright.store.v1 import ledger_pb2, read_pb2, registry_pb2, store_service_pb2_grpc
from turnwright.types.v1 import run_pb2

from proxy import proxied, trailers
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.kit.auth import call_metadata
from turnwright_core.kit.multiplexed_channel import MultiplexedChannel
from turnwright_core.kit.multiplexed_frames import METHOD, PART_BYTES, Call, Hello, ValueCodecs, batches, decode
from turnwright_core.kit.peer import Peer
from turnwright_core.kit.server import RunningServer
from turnwright_core.kit.service import Service
from turnwright_core.owner_calls import WriteEntriesCall
from turnwright_core.wire.owner_calls import OWNER_CALLS

pytestmark = pytest.mark.asyncio

SECRET = "s3cret"


class Ways(store_service_pb2_grpc.StoreServiceServicer):
    """A store that says which way a call has come."""

    def __init__(self):
        self.go = asyncio.Event()

    async def GetRun(self, request, context):
        if request.run == "waits":
            await self.go.wait()
        if request.run == "long":
            return registry_pb2.GetRunResponse(run=run_pb2.Run(run="x" * (2 * PART_BYTES + 1)))
        return registry_pb2.GetRunResponse(run=run_pb2.Run(run=context.peer()))

    async def CreateRun(self, request, context):
        await self.go.wait()
        return registry_pb2.CreateRunResponse(run=run_pb2.Run(run=context.peer()))

    async def WriteEntries(self, request, context):
        return ledger_pb2.WriteEntriesResponse(paths=[context.peer()])

    async def ReadView(self, request, context):
        if request.run == "waits":
            await self.go.wait()
        yield read_pb2.ReadViewResponse(removed_paths=[context.peer()])
        await self.go.wait()
        yield read_pb2.ReadViewResponse(removed_paths=[context.peer()])


class Peers:
    """A server, and a peer of it whose calls share a stream."""

    def __init__(self, server, ways, peer):
        self.server, self.ways, self.peer = server, ways, peer
        self.stub = store_service_pb2_grpc.StoreServiceStub(peer.channel)

    async def run(self, run="r", project="p"):
        answer = await self.peer.call(self.stub.GetRun, registry_pb2.GetRunRequest(project=project, run=run))
        return answer.run.run

    async def create(self, request_id=""):
        request = registry_pb2.CreateRunRequest(project="p", run="r", request_id=request_id)
        return (await self.peer.call(self.stub.CreateRun, request)).run.run

    def view(self, run="r", timeout_s=60):
        return self.peer.stream(self.stub.ReadView, read_pb2.ReadViewRequest(project="p", run=run), timeout_s)

    async def first(self, **view):
        """The first part of a view."""
        async with self.view(**view) as parts:
            return (await anext(parts)).removed_paths[0]

    async def until(self, *ways):
        """Wait until calls go one of these ways."""
        async with asyncio.timeout(60):
            while await self.run() not in ways:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def serving(tmp_path, codecs=OWNER_CALLS, address="", stream_s=600.0):
    ways = Ways()

    def register(server):
        store_service_pb2_grpc.add_StoreServiceServicer_to_server(ways, server)

    service = Service(
        "store", "turnwright.store.v1.StoreService", register, codecs=None if codecs is None else lambda: codecs
    )
    server = RunningServer(service, f"unix:{tmp_path}/s.sock", SECRET, 5.0)
    await server.start()
    peer = Peer("store", address or server.address, SECRET, 10.0)
    peer.channel = MultiplexedChannel(peer.channel, OWNER_CALLS, stream_s)
    try:
        yield Peers(server, ways, peer)
    finally:
        ways.go.set()
        await peer.close()
        await server.stop()


@pytest_asyncio.fixture
async def peers(tmp_path):
    async with serving(tmp_path) as made:
        yield made


async def test_the_first_call_opens_a_stream_and_does_not_wait_for_it(peers):
    assert (await peers.run()).startswith("unix:")
    await peers.until("multiplexed")
    async with peers.view() as parts:
        assert (await anext(parts)).removed_paths == ["multiplexed"]


@pytest.mark.parametrize("codecs", [None, {}], ids=["none", "other values"])
async def test_a_service_without_streams_or_with_other_values_is_called_by_rpcs(tmp_path, codecs):
    async with serving(tmp_path, codecs) as peers:
        for _ in range(3):
            assert (await peers.run()).startswith("unix:")
            await asyncio.sleep(0.1)


async def test_long_requests_are_rpcs_and_long_answers_come_in_parts(peers):
    await peers.until("multiplexed")
    assert (await peers.run(project="p" * (PART_BYTES + 1))).startswith("unix:")
    assert await peers.run("long") == "x" * (2 * PART_BYTES + 1)


async def test_a_service_that_leaves_ends_the_stream_with_its_last_call(peers):
    await peers.until("multiplexed")
    waiting = asyncio.create_task(peers.run("waits"))
    async with peers.view() as parts:
        await anext(parts)
        await peers.server.leave()
        # A call that crosses the word of it is made again as an rpc.
        assert (await peers.run()).startswith("unix:")
        assert (await peers.first()).startswith("unix:")
        peers.ways.go.set()
        assert (await anext(parts)).removed_paths == ["multiplexed"]
    assert await waiting == "multiplexed"


async def test_a_stream_is_replaced_and_its_calls_go_on(tmp_path):
    async with serving(tmp_path, stream_s=0.1) as peers:
        await peers.until("multiplexed")
        waiting = asyncio.create_task(peers.run("waits"))
        await asyncio.sleep(0)
        first = peers.peer.channel._stream
        async with asyncio.timeout(60):
            while peers.peer.channel._stream in (first, None):
                await peers.run()
        assert len(peers.peer.channel._held) > 1
        peers.ways.go.set()
        assert await waiting == "multiplexed"


async def test_a_lost_stream_fails_only_calls_that_may_not_be_repeated(tmp_path):
    async with proxied(f"unix:{tmp_path}/s.sock") as proxy, serving(tmp_path, address=proxy.address) as peers:
        await peers.until("multiplexed")
        repeated = [peers.run("waits"), peers.create("id"), peers.first(run="waits")]
        failed = [peers.create(), peers.first(run="waits", timeout_s=None)]
        calls = [asyncio.create_task(call) for call in (*repeated, *failed)]
        async with peers.view() as parts:
            await anext(parts)
            proxy.reset()
            # It has been answered something.
            for lost in (*calls[len(repeated) :], anext(parts)):
                with pytest.raises(TurnwrightError) as caught:
                    await lost
                assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
        peers.ways.go.set()
        for call in calls[: len(repeated)]:
            assert (await call).startswith("unix:")
        await peers.until("multiplexed")


async def test_a_call_by_value_that_a_proxy_ends_with_ok_was_not_answered(tmp_path):
    """A proxy may end an rpc with OK and without the answer: that is a lost answer as any other, not a fault of ours."""
    async with proxied(f"unix:{tmp_path}/s.sock") as proxy, serving(tmp_path, {}, proxy.address) as peers:
        proxy.on_data = lambda *_: proxy.end_calls(lambda call: trailers(call, 0))
        with pytest.raises(TurnwrightError) as failed:
            await peers.peer.call(peers.stub.WriteEntries, WriteEntriesCall("p", "r", 1, ()))
        assert failed.value.reason is Reason.SERVICE_UNAVAILABLE
        proxy.on_data = None
        written = await peers.peer.call(peers.stub.WriteEntries, WriteEntriesCall("p", "r", 1, ()))
        assert written.paths != ("multiplexed",)


async def test_what_cannot_be_read_ends_its_stream_alone(peers):
    await peers.until("multiplexed")
    schema = ValueCodecs(OWNER_CALLS).schema
    hello = next(batches([Hello(schema)]))
    metadata = call_metadata(SECRET)
    async with grpc.aio.insecure_channel(peers.server.address) as channel:
        for sent in ([b"\xc1"], [], [hello, b"\xc1"], [hello, b"\x91\x00"]):
            call = channel.stream_stream(METHOD)(iter(sent), metadata=metadata, timeout=60)
            with contextlib.suppress(grpc.aio.AioRpcError):
                assert [frame async for data in call for frame in decode(data)] in ([], [Hello(schema)])
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await anext(aiter(channel.stream_stream(METHOD)(iter([hello]), timeout=60)))
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert await peers.run() == "multiplexed"


async def test_a_call_that_cannot_be_carried_out_fails_alone(peers):
    hello = Hello(ValueCodecs(OWNER_CALLS).schema)
    token = call_metadata(SECRET)
    calls = [
        Call(1, "/turnwright.store.v1.StoreService/EndTurn", b"\xc1", token, None),
        Call(3, METHOD, b"", token, None),
        Call(4, "/gone", b"", token, None),
        Call(5, "/turnwright.store.v1.StoreService/GetRun", b"\xff", token, None),
        Call(6, "/turnwright.store.v1.StoreService/GetRun", b"", (), None),
        Call(7, "/turnwright.store.v1.StoreService/GetRun", b"", token, None),
    ]
    ended = {}
    async with grpc.aio.insecure_channel(peers.server.address) as channel:
        call = channel.stream_stream(METHOD)(metadata=token, timeout=60)
        for data in (*batches([hello]), *batches(calls)):
            await call.write(data)
        while len(ended) < len(calls):
            for frame in decode(await call.read()):
                if not isinstance(frame, Hello):
                    ended[frame.id] = getattr(frame, "code", 0)
    codes = {number: code for number, code in ended.items() if code}
    assert codes.keys() == {1, 3, 4, 5, 6}
    assert codes[6] == grpc.StatusCode.UNAUTHENTICATED.value[0]

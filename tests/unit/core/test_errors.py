"""The error table is total, and an error is the same on both sides of a channel. Architecture 14."""

from __future__ import annotations

import contextlib

import grpc
import pytest
from turnwright.provider.v1 import provider_service_pb2 as pb
from turnwright.provider.v1 import provider_service_pb2_grpc as pb_grpc
from turnwright_values.errors import CODES

from turnwright_core.errors import CLASS_OF_REASON, InternalError, Reason, TurnwrightError, fault
from turnwright_core.limits import PATH_CHARS_MAX
from turnwright_core.rpc.errors import from_rpc
from turnwright_kit.errors import to_status
from turnwright_kit.peer import Peer
from turnwright_kit.server import RunningServer
from turnwright_kit.service import Service

SECRET = "a secret"


def test_every_reason_has_a_class_and_every_class_a_code_of_its_own() -> None:
    assert set(CLASS_OF_REASON) == set(Reason) == {Reason.UNSPECIFIED, *CODES}
    codes = [grpc.StatusCode[kind.code] for kind in set(CLASS_OF_REASON.values())]
    assert len(codes) == len(set(codes))
    assert grpc.StatusCode.UNKNOWN not in codes


class Failing(pb_grpc.ProviderServiceServicer):
    """Fails as the test says, on a unary and on a streaming call."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def ListVendors(self, request, context):
        raise self.error

    async def Generate(self, request, context):
        yield pb.GenerateResponse()
        raise self.error


@contextlib.asynccontextmanager
async def failing(tmp_path, error: Exception):
    service = Service(
        "provider",
        "turnwright.provider.v1.ProviderService",
        lambda server: pb_grpc.add_ProviderServiceServicer_to_server(Failing(error), server),
    )
    server = RunningServer(service, f"unix:{tmp_path}/s", SECRET, 0.5)
    await server.start()
    peer = Peer("provider", server.address, SECRET, 5.0)
    try:
        yield peer, pb_grpc.ProviderServiceStub(peer.channel)
    finally:
        await peer.close()
        await server.stop()


@pytest.mark.asyncio
@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.name)
async def test_an_error_crosses_the_channel_whole(tmp_path, reason) -> None:
    sent = fault(reason, "What to do.", run="r1", limit=3)
    async with failing(tmp_path, sent) as (peer, stub):
        with pytest.raises(TurnwrightError) as unary:
            await peer.call(stub.ListVendors, pb.ListVendorsRequest())
        with pytest.raises(TurnwrightError) as streamed:
            async with peer.stream(stub.Generate, pb.GenerateRequest(), 5.0) as parts:
                [_ async for _ in parts]
    for got in (unary.value, streamed.value):
        assert (type(got), got.reason, got.message) == (type(sent), reason, "What to do.")
        assert got.metadata == {"run": "r1", "limit": "3"}


@pytest.mark.asyncio
@pytest.mark.parametrize("char", ["a", "%", "é", "漢", "\U0001f600"], ids=["plain", "quoted", "2", "3", "4 bytes"])
async def test_an_error_that_names_something_very_long_arrives(tmp_path, char) -> None:
    """What is longer than clients take by default would end the call with another code and without a reason."""
    path = char * PATH_CHARS_MAX
    sent = fault(Reason.ENTRY_NOT_FOUND, f"The run r has no entry {path}.", path=path, run="r")
    async with failing(tmp_path, sent) as (peer, stub):
        with pytest.raises(TurnwrightError) as refused:
            await peer.call(stub.ListVendors, pb.ListVendorsRequest())
    got = refused.value
    assert (got.reason, got.metadata["run"]) == (Reason.ENTRY_NOT_FOUND, "r")
    assert got.message.startswith(f"The run r has no entry {char * 50}")
    assert path.startswith(got.metadata["path"].removesuffix("..."))
    assert len(got.metadata["path"]) > PATH_CHARS_MAX / 8


def test_an_error_whose_status_was_replaced_on_its_way_is_one_of_the_service() -> None:
    status = to_status(fault(Reason.ENTRY_NOT_FOUND, "There is none.")).SerializeToString()
    trailers = grpc.aio.Metadata(("grpc-status-details-bin", status))
    replaced = grpc.aio.AioRpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.aio.Metadata(), trailers, "too long")
    assert from_rpc(replaced, "store", "there:1").reason is Reason.INTERNAL


@pytest.mark.asyncio
async def test_the_text_of_an_unexpected_exception_never_leaves_the_service(tmp_path, capsys) -> None:
    async with failing(tmp_path, ValueError("the password is hunter2")) as (peer, stub):
        with pytest.raises(InternalError) as unary:
            await peer.call(stub.ListVendors, pb.ListVendorsRequest())
        with pytest.raises(InternalError) as streamed:
            async with peer.stream(stub.Generate, pb.GenerateRequest(), 5.0) as parts:
                [_ async for _ in parts]
    for got in (unary.value, streamed.value):
        assert "hunter2" not in got.message + str(got.metadata)
        assert got.metadata["error_id"] in got.message


@pytest.mark.asyncio
async def test_a_service_that_is_not_there_is_said_to_be_unavailable_at_its_address(tmp_path) -> None:
    peer = Peer("store", f"unix:{tmp_path}/nobody", SECRET, 0.5)
    stub = pb_grpc.ProviderServiceStub(peer.channel)
    with pytest.raises(TurnwrightError) as refused:
        await peer.call(stub.ListVendors, pb.ListVendorsRequest())
    await peer.close()
    assert refused.value.reason is Reason.SERVICE_UNAVAILABLE
    assert refused.value.metadata == {"service": "store", "address": f"unix:{tmp_path}/nobody"}
    assert str(refused.value).endswith("Is it running there, for instance by `turnwright serve`?")

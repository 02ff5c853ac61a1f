"""A number that an enum of this release does not have is refused by name, in each enum field of each request."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
import pytest_asyncio
from google.protobuf import empty_pb2
from google.protobuf.message_factory import GetMessageClass
from turnwright.assembler.v1 import assembler_service_pb2
from turnwright.executor.v1 import executor_service_pb2, executor_service_pb2_grpc, task_pb2
from turnwright.provider.v1 import provider_service_pb2
from turnwright.settings.v1 import settings_service_pb2
from turnwright.store.v1 import store_service_pb2

from services import SECRET, running
from turnwright_core.errors import InvalidError, Reason
from turnwright_executor.rpc.mounting import MOUNTED
from turnwright_kit.peer import Peer
from turnwright_kit.server import RunningServer
from turnwright_kit.service import Service

UNKNOWN = 77
SERVICES = [
    service
    for file in (
        assembler_service_pb2, executor_service_pb2, provider_service_pb2, settings_service_pb2, store_service_pb2
    )
    for service in file.DESCRIPTOR.services_by_name.values()
] + list(MOUNTED)  # fmt: skip
RPCS = {f"/{service.full_name}/{rpc.name}": rpc for service in SERVICES for rpc in service.methods}


def places(kind, above=()) -> Iterator[tuple]:
    """The fields that lead to each enum below a message."""
    for field in kind.fields:
        if field.enum_type:
            yield (field,)
        elif field.message_type and field.message_type.full_name not in above:
            for rest in places(field.message_type, (*above, kind.full_name)):
                yield (field, *rest)


def filled(message, place) -> None:
    """Give the enum at a place a number that it does not have."""
    field, *rest = place
    if not rest:
        if field.is_repeated:
            getattr(message, field.name).extend([0, UNKNOWN])
        else:
            setattr(message, field.name, UNKNOWN)
    elif field.message_type.GetOptions().map_entry:
        filled(getattr(message, field.name)["key"], rest[1:])
    elif field.is_repeated:
        getattr(message, field.name).add()
        filled(getattr(message, field.name).add(), rest)
    else:
        filled(getattr(message, field.name), rest)


def named(place) -> str:
    """How an error names it."""
    return ".".join(field.name for field in place if not field.containing_type.GetOptions().map_entry)


PLACES = [(method, place) for method, rpc in RPCS.items() for place in places(rpc.input_type)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def peer():
    """A server that takes each request of the contract, and does nothing."""

    async def answer(_request, _context):
        return empty_pb2.Empty()

    def register(server) -> None:
        for service in SERVICES:
            handlers = {
                rpc.name: grpc.unary_unary_rpc_method_handler(
                    answer, GetMessageClass(rpc.input_type).FromString, empty_pb2.Empty.SerializeToString
                )
                for rpc in service.methods
            }
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))

    server = RunningServer(Service("store", "turnwright.store.v1.StoreService", register), "127.0.0.1:0", SECRET, 0.1)
    await server.start()
    made = Peer("store", server.address, SECRET, 30.0)
    yield made
    await made.close()
    await server.stop()


@pytest.mark.asyncio(loop_scope="module")
async def test_an_unknown_number_is_refused_by_name_wherever_an_enum_is(peer):
    assert len(PLACES) > 150
    wrong = {}
    for method, place in PLACES:
        call = peer.channel.unary_unary(
            method, request_serializer=lambda message: message.SerializeToString(), response_deserializer=bytes
        )
        kind = GetMessageClass(RPCS[method].input_type)
        assert await peer.call(call, kind()) == b""
        request = kind()
        filled(request, place)
        try:
            await peer.call(call, request)
            wrong[method, named(place)] = "taken"
        except InvalidError as error:
            known = [value.name for value in place[-1].enum_type.values]
            told = (error.reason, error.metadata, str(UNKNOWN) in error.message, known[0] in error.message)
            if told != (Reason.INVALID_FIELD, {"field": named(place)}, True, True):
                wrong[method, named(place)] = told
    assert wrong == {}


@pytest.mark.asyncio
async def test_a_task_of_an_unknown_kind_is_not_begun(tmp_path):
    async with running(tmp_path) as services:
        peer = Peer("executor", services.addresses["executor"], SECRET, 30.0)
        stub = executor_service_pb2_grpc.ExecutorServiceStub(peer.channel)
        request = task_pb2.ActRequest()
        request.task.project, request.task.run, request.task.prompt = services.project, "r", "Do it."
        request.task.settings.mode = UNKNOWN
        with pytest.raises(InvalidError, match="MODE_ACT") as refused:
            await peer.call(stub.Act, request)
        assert refused.value.metadata == {"field": "task.settings.mode"}
        await peer.close()

"""A service that cannot start says why, and what to do."""

from __future__ import annotations

import socket

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from turnwright.types.v1 import access_pb2

from turnwright_kit.access import UndeclaredAccessError
from turnwright_kit.server import RunningServer
from turnwright_kit.service import Service

pytestmark = pytest.mark.asyncio


async def test_an_address_that_is_taken_is_named_with_the_option_for_another():
    closed = []

    async def close() -> None:
        closed.append("store")

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        running = RunningServer(Service("store", "some.Service", lambda _: None, close=close), address, "secret", 1)
        with pytest.raises(OSError, match=f"^The store cannot listen on {address}: .* --listen store=HOST:PORT.$"):
            await running.start()
    assert closed == ["store"]


def added_service(package: str, access: access_pb2.Access | None) -> str:
    """A service of the contract with one rpc, whose request has no field."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    file.message_type.add(name="DoRequest")
    rpc = file.service.add(name="LaterService").method.add(name="Do")
    rpc.input_type = rpc.output_type = f".{package}.DoRequest"
    if access:
        rpc.options.Extensions[access_pb2.access].CopyFrom(access)
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
    return f"{package}.LaterService"


@pytest.mark.parametrize(
    ("package", "access", "problem"),
    [
        ("turnwright.undeclared.v1", None, "does not say which right its callers need"),
        ("turnwright.reaching.v1", access_pb2.Access(reach=access_pb2.REACH_PROJECTS), "does not say which right"),
        ("turnwright.nowhere.v1", access_pb2.Access(right=access_pb2.RIGHT_READ), "its request names none"),
        (
            "turnwright.everywhere.v1",
            access_pb2.Access(right=access_pb2.RIGHT_READ, reach=access_pb2.REACH_PROJECTS),
            "",
        ),
        (
            "turnwright.admins.v1",
            access_pb2.Access(right=access_pb2.RIGHT_ADMIN, reach=access_pb2.REACH_DEPLOYMENT),
            "",
        ),
        ("turnwright.anybody.v1", access_pb2.Access(right=access_pb2.RIGHT_IDENTITY), ""),
        ("someone.undeclared.v1", None, ""),
    ],
)
async def test_a_service_with_an_rpc_that_does_not_say_who_may_call_it_does_not_start(
    tmp_path, package, access, problem
):
    name = added_service(package, access)
    closed = []

    async def close() -> None:
        closed.append(name)

    def register(server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {}),))

    running = RunningServer(Service("later", name, register, close=close), f"unix:{tmp_path}/later", "secret", 0)
    if problem:
        with pytest.raises(UndeclaredAccessError, match=rf"^{name}\.Do .*{problem}"):
            await running.start()
    else:
        await running.start()
        await running.stop()
    assert closed == [name]

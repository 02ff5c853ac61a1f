"""Addresses of the form `dns:///NAME:PORT`, whose replicas come and go."""

import asyncio
import contextlib
import socket
import struct

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from turnwright_core.rpc.certificates import Tls
from turnwright_core.rpc.transport import open_channel
from turnwright_kit.health import Health


class OneName(asyncio.DatagramProtocol):
    """A name server that answers every question for an address with the same one."""

    address = "127.0.0.2"

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, question, sender):
        end = question.index(0, 12) + 5
        (kind,) = struct.unpack_from(">H", question, end - 4)
        answer = struct.pack(">HHHIH", 0xC00C, 1, 1, 5, 4) + socket.inet_aton(self.address) if kind == 1 else b""
        header = question[:2] + struct.pack(">HHHHH", 0x8400, 1, bool(answer), 0, 0)
        self.transport.sendto(header + question[12:end] + answer, sender)


@contextlib.asynccontextmanager
async def replica(address, port=0):
    """A server with health alone at an address; yields its port."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    health_pb2_grpc.add_HealthServicer_to_server(Health("replica"), server)
    bound = server.add_insecure_port(f"{address}:{port}")
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(0)


async def answered(stub, within_s):
    """The answer over a connection that is whole: the end of the old one may not have been noticed."""
    async with asyncio.timeout(within_s):
        while True:
            try:
                return await stub.Check(health_pb2.HealthCheckRequest(), wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise


@pytest.mark.asyncio
async def test_a_name_is_looked_up_again_soon_after_all_its_replicas_have_been_replaced():
    names = OneName()
    loop = asyncio.get_running_loop()
    listening, _ = await loop.create_datagram_endpoint(lambda: names, local_addr=("127.0.0.1", 0))
    authority = "127.0.0.1:{}".format(listening.get_extra_info("sockname")[1])
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(listening.close)
        async with replica(names.address) as port:
            channel = open_channel(f"dns://{authority}/store.test:{port}", (), Tls(insecure=True))
            stack.push_async_callback(channel.close)
            stub = health_pb2_grpc.HealthStub(channel)
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=20, wait_for_ready=True)
        names.address = "127.0.0.3"
        await stack.enter_async_context(replica(names.address, port))
        # By default, gRPC would not ask for half a minute.
        answer = await answered(stub, within_s=20)
    assert answer == health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)

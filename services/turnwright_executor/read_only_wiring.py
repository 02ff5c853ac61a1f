"""Composition root of an executor that only answers what can be read: no loops, no tools, no plugins, no sandbox."""

from __future__ import annotations

from typing import Any

from turnwright.executor.v1 import executor_service_pb2, executor_service_pb2_grpc

from turnwright_core.wire.owner_calls import OWNER_CALLS
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.files.projects import Projects
from turnwright_executor.peers.status import Status
from turnwright_executor.rpc.forwarding import OpenWatches
from turnwright_executor.rpc.mounting import mounts
from turnwright_executor.rpc.projects import ProjectReads
from turnwright_executor.rpc.query_servicer import ReadingServicer
from turnwright_kit.identity.policy import Policy
from turnwright_kit.in_process import LocalServers
from turnwright_kit.peer import Peer
from turnwright_kit.service import Service


def build(settings: ExecutorSettings, secret: str, local_servers: LocalServers) -> Service:
    """The executor; without a local assembler it explains nothing, without a local provider it knows no vendors."""
    addresses = {"store": settings.store, "assembler": settings.assembler, "provider": settings.provider}
    peers = {
        name: Peer(
            name,
            address,
            secret,
            settings.rpc_timeout_s,
            local_servers=local_servers,
            codecs=OWNER_CALLS,
            service="executor",
        )
        for name, address in addresses.items()
    }
    store = peers["store"]
    # Only holders of the secret call it: nothing is granted.
    policy = Policy(lambda: 0)
    explain = None
    if settings.assembler in local_servers:
        from turnwright_executor.peers.explaining import RecordedPackets  # noqa: PLC0415 - loads what assembles
        from turnwright_executor.peers.store import StoreLedger  # noqa: PLC0415 - the same

        explain = RecordedPackets(store, peers["assembler"], StoreLedger(store, "", "")).explain
    # What it lacks is UNIMPLEMENTED.
    servicer = ReadingServicer(  # type: ignore[abstract]
        store,
        explain,
        Status(store, peers["assembler"], peers["provider"], settings, policy).read,
    )

    projects = Projects(store)
    reads = ProjectReads(policy, projects.at)

    async def close() -> None:
        for peer in peers.values():
            await peer.close()

    def register(server: Any) -> None:
        executor_service_pb2_grpc.add_ExecutorServiceServicer_to_server(servicer, server)
        server.add_generic_rpc_handlers(mounts(store, reads.around(), OpenWatches(settings.event_heartbeat_s)))

    name = executor_service_pb2.DESCRIPTOR.services_by_name["ExecutorService"].full_name
    return Service("executor", name, register, close=close, settings=settings, policy=policy)

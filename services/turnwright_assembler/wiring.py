"""The composition root of the assembler: the only module that names its concrete edges."""

from __future__ import annotations

import grpc
from turnwright.assembler.v1 import assembler_service_pb2_grpc

from turnwright_assembler.app.assemble import Assembler, Rules
from turnwright_assembler.app.run_cache import RunCache
from turnwright_assembler.config import AssemblerSettings
from turnwright_assembler.edge.store_reader import StoreReader
from turnwright_assembler.rpc.assembler_servicer import SERVICE_NAME, AssemblerServicer
from turnwright_core.entries import Tier
from turnwright_core.kit.neighbours import Neighbours
from turnwright_core.kit.peer import Peer
from turnwright_core.kit.server import Service


def build(settings: AssemblerSettings, secret: str, neighbours: Neighbours | None = None) -> Service:
    """The assembler, ready to be served. Its connection to the store opens with the first call."""
    cache = RunCache(settings.assembler_cache_bytes_max, settings.assembler_calls_per_run_max)
    rules = Rules(settings.token_divisor, settings.budget_ceiling)
    peers: list[Peer] = []

    def register(server: grpc.aio.Server) -> None:
        # The channel belongs to the event loop that serves. It only reads: the tier of a client is enough for that.
        peer = Peer("store", settings.store, secret, settings.rpc_timeout_s, Tier.CLIENT, neighbours)
        peers.append(peer)
        assembler = Assembler(StoreReader(peer, settings.assembler_read_timeout_s), cache, rules)
        assembler_service_pb2_grpc.add_AssemblerServiceServicer_to_server(AssemblerServicer(assembler), server)

    async def close() -> None:
        for peer in peers:
            await peer.close()

    return Service("assembler", SERVICE_NAME, register, close=close)

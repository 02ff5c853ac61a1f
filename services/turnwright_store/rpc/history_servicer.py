"""Rpcs that fork and remove runs, and read packets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from turnwright.store.v1 import read_pb2, registry_pb2

from turnwright_core.kit.auth import Caller
from turnwright_core.wire import runs as wire
from turnwright_store.app import forks, packets, retention
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, address_of, alias_locks, mutation


class HistoryRpcs(Calls):
    """Rpcs that fork and remove runs, and read packets."""

    @mutation(locks=alias_locks)
    def ForkRun(
        self, request: registry_pb2.ForkRunRequest, tx: Transaction, _caller: Caller
    ) -> registry_pb2.ForkRunResponse:
        child = forks.fork_run(tx, address_of(request), request.new_run, request.turn)
        return registry_pb2.ForkRunResponse(run=wire.run_to_pb(child))

    @mutation(locks=alias_locks)
    def RemoveRun(
        self, request: registry_pb2.RemoveRunRequest, tx: Transaction, _caller: Caller
    ) -> registry_pb2.RemoveRunResponse:
        retention.remove_run(tx, address_of(request))
        return registry_pb2.RemoveRunResponse()

    async def ReadPacket(
        self, request: read_pb2.ReadPacketRequest, _context: Any
    ) -> AsyncIterator[read_pb2.ReadPacketResponse]:
        address = address_of(request)
        held: read_pb2.ReadPacketResponse | None = None
        async for part in packets.read_packet(self._database, address, request.turn):
            if held:
                yield held
            held = read_pb2.ReadPacketResponse(
                index=part.index, role=part.role, text=part.text, note=part.note, piece_chars=part.piece_chars
            )
        if held:
            held.last = True
            yield held

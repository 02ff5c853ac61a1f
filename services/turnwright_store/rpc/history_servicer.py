"""Rpcs that fork and remove runs, and read packets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from turnwright.store.v1 import read_pb2, registry_pb2, write_pb2

from turnwright_core.kit.auth import Caller
from turnwright_core.wire import runs as wire
from turnwright_core.wire.packets import piece_from_pb, shown_in
from turnwright_store.app import forks, packets, retention
from turnwright_store.app.reading import Address
from turnwright_store.domain.locks import project_lock, run_lock
from turnwright_store.domain.packets import Message, Packet, check_packet
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls


def packet_of(record: write_pb2.PacketRecord) -> Packet:
    """A packet from the wire. Raises what is wrong with it by itself."""
    messages = tuple(Message(each.role, tuple(map(piece_from_pb, each.pieces))) for each in record.messages)
    packet = Packet(record.turn, messages, record.base_turn, record.note, shown_in(record.messages), record.again)
    check_packet(packet)
    return packet


class HistoryRpcs(Calls):
    """Rpcs that fork and remove runs, and read packets."""

    async def ForkRun(self, request: registry_pb2.ForkRunRequest, _context: Any) -> registry_pb2.ForkRunResponse:
        """See StoreService."""

        def work(tx: Transaction, _caller: Caller) -> registry_pb2.ForkRunResponse:
            child = forks.fork_run(tx, Address(request.project, request.run), request.new_run, request.turn)
            return registry_pb2.ForkRunResponse(run=wire.run_to_pb(child))

        # The project's name stands for its families: no run is removed while another one inherits from it.
        locks = {
            project_lock(request.project),
            run_lock(request.project, request.run),
            run_lock(request.project, request.new_run),
        }
        return await self._once(request, registry_pb2.ForkRunResponse, work, locks=locks)

    async def RemoveRun(self, request: registry_pb2.RemoveRunRequest, _context: Any) -> registry_pb2.RemoveRunResponse:
        """See StoreService."""

        def work(tx: Transaction, _caller: Caller) -> registry_pb2.RemoveRunResponse:
            retention.remove_run(tx, Address(request.project, request.run))
            return registry_pb2.RemoveRunResponse()

        locks = {project_lock(request.project), run_lock(request.project, request.run)}
        return await self._once(request, registry_pb2.RemoveRunResponse, work, locks=locks)

    async def ReadPacket(
        self, request: read_pb2.ReadPacketRequest, _context: Any
    ) -> AsyncIterator[read_pb2.ReadPacketResponse]:
        """See StoreService."""
        address = Address(request.project, request.run)
        async for part in packets.read_packet(self._database, address, request.turn):
            yield read_pb2.ReadPacketResponse(index=part.index, role=part.role, text=part.text, note=part.note)

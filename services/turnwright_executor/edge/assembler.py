"""The assembler over gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

from turnwright.assembler.v1 import assembler_service_pb2 as pb
from turnwright.assembler.v1 import assembler_service_pb2_grpc, budget_pb2
from turnwright.provider.v1 import provider_service_pb2

from turnwright_core.differences import Copied, whole
from turnwright_core.entries import Cursor, EntryWrite
from turnwright_core.errors import Reason, fault
from turnwright_core.kit.peer import Peer
from turnwright_core.runs import Turn
from turnwright_core.wire.entries import cursor_from_pb, cursor_to_pb, write_from_pb
from turnwright_core.wire.packets import piece_from_pb
from turnwright_executor.ports.address import RunAddress
from turnwright_executor.ports.packets import Packet, PacketMessage, StoredPacket

_ROLES = {provider_service_pb2.ROLE_SYSTEM: "system", provider_service_pb2.ROLE_USER: "user"}


class AssemblerPackets:
    """Implements ports.Packets."""

    def __init__(self, peer: Peer) -> None:
        """Speak through this peer."""
        self._peer = peer
        self._stub = assembler_service_pb2_grpc.AssemblerServiceStub(peer.channel)

    async def assemble(
        self,
        address: RunAddress,
        turn: Turn,
        at_least: Cursor | None,
        calibration: float,
        base: StoredPacket | None,
    ) -> Packet:
        """The packet of a turn."""
        request = pb.AssembleRequest(
            project=address.project,
            run=address.run,
            turn=turn.number,
            loop=turn.loop,
            context_length=turn.request.context_length,
            at_least=cursor_to_pb(at_least) if at_least else None,
            calibration=calibration,
            base_digest=base.digest if base else "",
        )
        changes: dict[int, list[Copied | str]] = {}
        roles: dict[int, str] = {}
        async with aclosing(self._peer.stream(self._stub.Assemble, request, self._peer.timeout_s)) as parts:
            async for part in parts:
                if part.WhichOneof("part") == "report":
                    known = base.pieces if base else ()
                    messages = tuple(_message(roles[index], changes[index], known) for index in sorted(changes))
                    return _packet(messages, part.report)
                roles.setdefault(part.pieces.index, _ROLES.get(part.pieces.role, "assistant"))
                changes.setdefault(part.pieces.index, []).extend(map(piece_from_pb, part.pieces.pieces))
        raise fault(Reason.INTERNAL, "The assembler ended its answer without a report.", error_id="assembler")

    async def check_budget(
        self, address: RunAddress, turn: Turn, at_least: Cursor | None, calibration: float
    ) -> tuple[EntryWrite, ...]:
        """What to write where a turn brought too much."""
        request = budget_pb2.CheckBudgetRequest(
            project=address.project,
            run=address.run,
            turn=turn.number,
            loop=turn.loop,
            context_length=turn.request.context_length,
            at_least=cursor_to_pb(at_least) if at_least else None,
            calibration=calibration,
        )
        answer = await self._peer.call(self._stub.CheckBudget, request)
        return tuple(map(write_from_pb, answer.effects))


def _message(role: str, changes: Sequence[Copied | str], base: Sequence[str]) -> PacketMessage:
    try:
        return PacketMessage(role, tuple(whole(changes, base)), tuple(changes))
    except IndexError:
        message = "The assembler copies pieces that the packet before does not have; continue the run to send it whole."
        raise fault(Reason.INTERNAL, message, error_id="assembler") from None


def _packet(messages: tuple[PacketMessage, ...], report: pb.PacketReport) -> Packet:
    return Packet(
        messages=messages,
        effects=tuple(write_from_pb(write) for write in report.effects),
        overflow=report.overflow,
        digest=report.digest,
        tokens=report.tokens,
        ceiling=report.ceiling,
        cursor=cursor_from_pb(report.cursor),
    )

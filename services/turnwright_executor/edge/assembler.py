"""The assembler over gRPC."""

from __future__ import annotations

from turnwright.assembler.v1 import assembler_service_pb2 as pb
from turnwright.assembler.v1 import assembler_service_pb2_grpc
from turnwright.provider.v1 import provider_service_pb2

from turnwright_core.entries import Cursor
from turnwright_core.errors import Reason, fault
from turnwright_core.kit.peer import Peer
from turnwright_core.runs import Turn
from turnwright_core.wire.entries import cursor_from_pb, cursor_to_pb, write_from_pb
from turnwright_executor.ports import Packet, PacketMessage, RunAddress

_ROLES = {provider_service_pb2.ROLE_SYSTEM: "system", provider_service_pb2.ROLE_USER: "user"}


class AssemblerPackets:
    """Implements ports.Packets."""

    def __init__(self, peer: Peer) -> None:
        """Speak through this peer."""
        self._peer = peer
        self._stub = assembler_service_pb2_grpc.AssemblerServiceStub(peer.channel)

    async def assemble(self, address: RunAddress, turn: Turn, at_least: Cursor | None, calibration: float) -> Packet:
        """The packet of a turn."""
        request = pb.AssembleRequest(
            project=address.project,
            run=address.run,
            turn=turn.number,
            loop=turn.loop,
            context_length=turn.request.context_length,
            at_least=cursor_to_pb(at_least) if at_least else None,
            calibration=calibration,
        )
        texts: dict[int, list[str]] = {}
        roles: dict[int, str] = {}
        async for part in self._peer.stream(self._stub.Assemble, request, self._peer.timeout_s):
            if part.WhichOneof("part") == "report":
                messages = tuple(PacketMessage(roles[index], "".join(texts[index])) for index in sorted(texts))
                return _packet(messages, part.report)
            roles.setdefault(part.text.index, _ROLES.get(part.text.role, "assistant"))
            texts.setdefault(part.text.index, []).append(part.text.text)
        raise fault(Reason.INTERNAL, "The assembler ended its answer without a report.", error_id="assembler")


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

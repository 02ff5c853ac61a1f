"""The assembler's gRPC client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from turnwright.assembler.v1 import assembler_service_pb2_grpc
from turnwright_values.assembler import AssembleRequest, CheckBudgetResponse, PacketReport
from turnwright_values.types import Assembly, Cursor, Turn, ViewChange

from turnwright_core.chat.prompt_edits import PromptEdit
from turnwright_core.delta_encoding import decode
from turnwright_core.errors import Reason, fault
from turnwright_core.packet_values import PacketMessage
from turnwright_core.wire.owner_calls import check_budget_to_pb, check_from_pb
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.tokens import TokenRate
from turnwright_executor.ports.packets import AssembledMessage, Packet, StoredPacket
from turnwright_kit.logs import get_logger
from turnwright_kit.peer import Peer

_log = get_logger("assembler")


def assemble_call(
    address: RunAddress, turn: Turn, calibration: float, edits: Sequence[PromptEdit] = (), *, prefill: bool = False
) -> AssembleRequest:
    """What the packet of a turn follows from, beside what the store has of its run."""
    request = turn.request
    return AssembleRequest(
        address.project, address.run, turn.number, turn.loop, request.context_length, None, calibration,
        transcript=request.assembly is Assembly.TRANSCRIPT, output_reserve=request.output_reserve, edits=edits,
        prefill=prefill, kind=request.kind,
    )  # fmt: skip


class AssemblerPackets:
    """Implements ports.Packets."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._stub = assembler_service_pb2_grpc.AssemblerServiceStub(peer.channel)
        self._by_value: Any = self._stub
        """The same for the call that takes values (turnwright_core.owner_calls)."""

    async def assemble(
        self,
        address: RunAddress,
        turn: Turn,
        at_least: Cursor | None,
        rate: TokenRate,
        base: StoredPacket | None,
        view_changes: Sequence[ViewChange] = (),
        edits: Sequence[PromptEdit] = (),
        *,
        plugins: bool = True,
        prefill: bool = False,
    ) -> Packet:
        call = replace(
            assemble_call(address, turn, rate.calibration, edits, prefill=prefill),
            at_least=at_least,
            base_digest=base.digest if base else "",
            view_changes=view_changes,
            request=turn.request if plugins else None,
        )
        packet = await self._assembled(call, base.pieces if base else ())
        if packet is None:
            # Not the packet that the assembler built: request it again without a base.
            _log.warning("packet_base_differed", run=address.run, turn=turn.number)
            packet = await self._assembled(replace(call, base_digest=""), ())
        if packet is None:
            message = "The assembler's pieces do not make the packet that it reports."
            raise fault(Reason.INTERNAL, message, error_id="assembler")
        return replace(packet, rate=rate)

    async def _assembled(self, call: AssembleRequest, base: Sequence[str]) -> Packet | None:
        """The reassembled packet; None if its digest does not match."""
        deltas: list[PacketMessage] = []
        report: PacketReport | None = None
        async with self._peer.stream(self._by_value.Assemble, call, self._peer.timeout_s) as parts:
            async for part in parts:
                report = part.report
                for one in part.messages:
                    # A long message comes in parts.
                    before = deltas.pop() if deltas and deltas[-1].role == one.role else PacketMessage(one.role, ())
                    deltas.append(PacketMessage(one.role, before.pieces + one.pieces, {**before.shows, **one.shows}))
        if report is None:
            raise self._peer.cut_short("a report")
        try:
            messages = tuple([AssembledMessage(one.role, tuple(decode(one.pieces, base)), one) for one in deltas])
        except IndexError:
            # They copy pieces that the base packet does not have.
            return None
        chars = sum(sum(map(len, message.pieces)) for message in messages)
        return Packet(messages, report) if chars == report.chars else None

    async def check_budget(
        self,
        address: RunAddress,
        turn: Turn,
        at_least: Cursor | None,
        calibration: float,
        edits: Sequence[PromptEdit] = (),
    ) -> CheckBudgetResponse:
        call = replace(assemble_call(address, turn, calibration, edits), at_least=at_least)
        answer = await self._peer.call(self._stub.CheckBudget, check_budget_to_pb(call))
        return check_from_pb(answer)

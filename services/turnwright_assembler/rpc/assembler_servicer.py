"""AssemblerService: decode, assemble, encode."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Final

from msgspec.structs import replace
from turnwright.assembler.v1 import assembler_service_pb2, assembler_service_pb2_grpc, budget_pb2

from turnwright_assembler.app.assemble import Assembler
from turnwright_assembler.app.explaining import Explainer
from turnwright_assembler.rpc.checks import check_assemble
from turnwright_assembler.rpc.explanation import explain_request_from, explanation_to_pb
from turnwright_core.delta_encoding import Copied
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.owner_calls import AssembleCall, AssembledPart, PacketPieces
from turnwright_core.wire.entries import write_to_pb
from turnwright_core.wire.owner_calls import check_budget_from_pb

SERVICE_NAME: Final = "turnwright.assembler.v1.AssemblerService"


BESIDE_REPORT_BYTES_MAX: Final = CHUNK_BYTES // 2
"""Maximum bytes of the pieces in the message with the report, which needs some room itself."""

_OVERHEAD_BYTES: Final = 16
"""Maximum overhead of a piece on the wire, besides its text."""


class AssemblerServicer(assembler_service_pb2_grpc.AssemblerServiceServicer):
    """The rpcs of the assembler."""

    def __init__(self, assembler: Assembler, explainer: Explainer) -> None:
        self._assembler = assembler
        self._explainer = explainer

    async def Assemble(  # type: ignore[override]
        self, call: AssembleCall, context: Any
    ) -> AsyncIterator[AssembledPart]:
        """The packet's pieces in parts, then the report, with the last pieces if they fit into one message with it."""
        check_assemble(call)
        assembled = await self._assembler.assemble(call)
        held: list[PacketPieces] = []
        size = 0
        for index, (role, pieces) in enumerate(assembled.messages):
            for part, part_bytes in _parts(pieces):
                held.append(PacketPieces(index, role, part, assembled.shows))
                size += part_bytes
                if size > BESIDE_REPORT_BYTES_MAX:
                    for one in held:
                        yield AssembledPart(pieces=one)
                    held, size = [], 0
        yield AssembledPart(report=replace(assembled.report, pieces=tuple(held)))

    async def CheckBudget(self, request: budget_pb2.CheckBudgetRequest, context: Any) -> budget_pb2.CheckBudgetResponse:
        """What to summarize if the results of a turn are too large."""
        call = check_budget_from_pb(request)
        check_assemble(call)
        checked = await self._assembler.check(call)
        effects = map(write_to_pb, checked.effects)
        return budget_pb2.CheckBudgetResponse(
            effects=effects, tokens=checked.tokens, ceiling=checked.ceiling, summarize=checked.summarize
        )

    async def Explain(
        self, request: assembler_service_pb2.ExplainRequest, context: Any
    ) -> assembler_service_pb2.ExplainResponse:
        explained = await self._explainer.explain(explain_request_from(request))
        explanation = explanation_to_pb(explained, request.pieces_max)
        explanation.render_version = self._assembler.packet_plugins.render_version
        return assembler_service_pb2.ExplainResponse(explanation=explanation)


def _parts(pieces: Iterable[Copied | str]) -> Iterator[tuple[tuple[Copied | str, ...], int]]:
    """The pieces in parts of at most 256 KiB, at least one part, each with its bytes."""
    part: list[Copied | str] = []
    size = 0
    for piece in pieces:
        more = _OVERHEAD_BYTES + (len(piece.encode()) if isinstance(piece, str) else 0)
        if part and size + more > CHUNK_BYTES:
            yield tuple(part), size
            part, size = [], 0
        part.append(piece)
        size += more
    yield tuple(part), size

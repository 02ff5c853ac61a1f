"""AssemblerService: decode, assemble, encode."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Final

import grpc
from turnwright.assembler.v1 import assembler_service_pb2, assembler_service_pb2_grpc, budget_pb2
from turnwright.types.v1 import message_pb2, packet_pb2

from turnwright_assembler.app.assemble import Assembled, Assembler
from turnwright_assembler.app.explaining import Explainer
from turnwright_assembler.rpc.checks import packet_request_from
from turnwright_assembler.rpc.explanation import explain_request_from, explanation_to_pb
from turnwright_assembler.sections.plugin_sections import PacketPlugins
from turnwright_core.delta_encoding import Copied
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.owner_calls import AssembleCall
from turnwright_core.packet_digest import CONVERSATION
from turnwright_core.wire.entries import cursor_to_pb, write_to_pb
from turnwright_core.wire.packets import piece_to_pb
from turnwright_core.wire.prompt_edits import edit_to_pb

SERVICE_NAME: Final = "turnwright.assembler.v1.AssemblerService"

_ROLES: Final = {"system": message_pb2.ROLE_SYSTEM, "user": message_pb2.ROLE_USER}

BESIDE_REPORT_BYTES_MAX: Final = CHUNK_BYTES // 2
"""Maximum bytes of the pieces in the message with the report, which needs some room itself."""

_OVERHEAD_BYTES: Final = 16
"""Maximum overhead of a piece on the wire, besides its text."""


class AssemblerServicer(assembler_service_pb2_grpc.AssemblerServiceServicer):
    """The rpcs of the assembler."""

    def __init__(self, assembler: Assembler, explainer: Explainer) -> None:
        """Answer from this assembler, and explain what it assembles."""
        self._assembler = assembler
        self._explainer = explainer

    async def Assemble(
        self,
        request: AssembleCall | assembler_service_pb2.AssembleRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[assembler_service_pb2.AssembleResponse]:
        """The packet's pieces in parts, then the report, with the last pieces if they fit into one message with it."""
        assembled = await self._assembler.assemble(packet_request_from(request))
        held: list[assembler_service_pb2.MessagePieces] = []
        size = 0
        for message in _messages(assembled):
            held.append(message)
            size += message.ByteSize()
            if size > BESIDE_REPORT_BYTES_MAX:
                for one in held:
                    yield assembler_service_pb2.AssembleResponse(pieces=one)
                held, size = [], 0
        yield assembler_service_pb2.AssembleResponse(report=_report(assembled, self._assembler.packet_plugins, held))

    async def CheckBudget(
        self, request: budget_pb2.CheckBudgetRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> budget_pb2.CheckBudgetResponse:
        """What to summarize if the results of a turn are too large."""
        checked = await self._assembler.check(packet_request_from(request))
        effects = map(write_to_pb, checked.effects)
        return budget_pb2.CheckBudgetResponse(
            effects=effects, tokens=checked.tokens, ceiling=checked.ceiling, summarize=checked.summarize
        )

    async def Explain(
        self, request: assembler_service_pb2.ExplainRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> assembler_service_pb2.ExplainResponse:
        """What a packet consists of, and why."""
        explained = await self._explainer.explain(explain_request_from(request))
        explanation = explanation_to_pb(explained, request.pieces_max)
        explanation.render_version = self._assembler.packet_plugins.render_version
        return assembler_service_pb2.ExplainResponse(explanation=explanation)


def _messages(assembled: Assembled) -> Iterator[assembler_service_pb2.MessagePieces]:
    for index, (role, pieces) in enumerate(assembled.messages):
        for part in _parts(pieces, assembled.shows):
            yield assembler_service_pb2.MessagePieces(
                index=index,
                role=_ROLES.get(role, message_pb2.ROLE_UNSPECIFIED),
                pieces=part,
                tools=role == "tools",
                conversation=role == CONVERSATION,
            )


def _parts(pieces: Iterable[Copied | str], shows: Mapping[str, str]) -> Iterator[list[packet_pb2.PacketPiece]]:
    """The pieces in parts of at most 256 KiB, at least one part."""
    part: list[packet_pb2.PacketPiece] = []
    size = 0
    for piece in pieces:
        chars = len(piece) + len(shows.get(piece, "")) if isinstance(piece, str) else 0
        more = _OVERHEAD_BYTES + 4 * chars
        if part and size + more > CHUNK_BYTES:
            yield part
            part, size = [], 0
        part.append(piece_to_pb(piece, shows))
        size += more
    yield part


def _report(
    assembled: Assembled, packet_plugins: PacketPlugins, pieces: Iterable[assembler_service_pb2.MessagePieces]
) -> assembler_service_pb2.PacketReport:
    return assembler_service_pb2.PacketReport(
        effects=[write_to_pb(write) for write in assembled.effects],
        overflow=assembled.overflow,
        digest=assembled.digest,
        tokens=assembled.tokens,
        ceiling=assembled.ceiling,
        chars=assembled.chars,
        cursor=cursor_to_pb(assembled.cursor),
        render_version=packet_plugins.render_version,
        plugins=packet_plugins.plugins,
        plan_tokens=assembled.plan_tokens,
        pieces=pieces,
        compression=int(assembled.compression),  # type: ignore[arg-type]
        after_reply=[write_to_pb(write) for write in assembled.after_reply],
        unfit=[assembler_service_pb2.UnfitPiece(path=one.path, tokens=one.tokens) for one in assembled.unfit],
        edits=map(edit_to_pb, assembled.edits),
        edit_tokens=assembled.edit_tokens,
        checkpoint=assembled.checkpoint,
    )

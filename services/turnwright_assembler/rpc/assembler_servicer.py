"""AssemblerService: decode, assemble, encode."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import grpc
from turnwright.assembler.v1 import assembler_service_pb2, assembler_service_pb2_grpc
from turnwright.provider.v1 import provider_service_pb2

from turnwright_assembler.app.assemble import Assembled, Assembler
from turnwright_assembler.rpc.checks import ask_from
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.wire.entries import cursor_to_pb, write_to_pb

SERVICE_NAME: Final = "turnwright.assembler.v1.AssemblerService"

_OVERHEAD_BYTES: Final = 64
TEXT_CHARS_MAX: Final = (CHUNK_BYTES - _OVERHEAD_BYTES) // 4
"""Code points of one part: four bytes each at most, so that no part is over CHUNK_BYTES whatever the text."""


class AssemblerServicer(assembler_service_pb2_grpc.AssemblerServiceServicer):
    """The rpcs of the assembler."""

    def __init__(self, assembler: Assembler) -> None:
        """Answer from this assembler."""
        self._assembler = assembler

    async def Assemble(
        self,
        request: assembler_service_pb2.AssembleRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[assembler_service_pb2.AssembleResponse]:
        """The packet's texts in parts, then the report."""
        assembled = await self._assembler.assemble(ask_from(request))
        for message in _texts(assembled):
            yield message
        yield assembler_service_pb2.AssembleResponse(report=_report(assembled))


def _texts(assembled: Assembled) -> Iterator[assembler_service_pb2.AssembleResponse]:
    packet = assembled.packet
    messages = ((provider_service_pb2.ROLE_SYSTEM, packet.system), (provider_service_pb2.ROLE_USER, packet.user))
    for index, (role, text) in enumerate(messages):
        for start in range(0, len(text), TEXT_CHARS_MAX):
            part = assembler_service_pb2.MessageText(index=index, role=role, text=text[start : start + TEXT_CHARS_MAX])
            yield assembler_service_pb2.AssembleResponse(text=part)


def _report(assembled: Assembled) -> assembler_service_pb2.PacketReport:
    return assembler_service_pb2.PacketReport(
        effects=[write_to_pb(write) for write in assembled.effects],
        overflow=assembled.overflow,
        digest=assembled.packet.digest(),
        tokens=assembled.packet.tokens,
        ceiling=assembled.ceiling,
        cursor=cursor_to_pb(assembled.cursor),
    )

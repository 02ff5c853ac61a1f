"""AssemblerService: decode, assemble, encode."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from math import isfinite
from typing import Final

from turnwright.assembler.v1 import assembler_service_pb2, assembler_service_pb2_grpc, budget_pb2
from turnwright_values.assembler import AssembleRequest, AssembleResponse
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Entry, State, Visibility

from turnwright_assembler.app.assemble import Assembler
from turnwright_assembler.app.explaining import Explainer
from turnwright_core.chat.prompt_edits import check_edits, check_kept_images
from turnwright_core.checks import check_chars, check_count, invalid
from turnwright_core.delta_encoding import Copied
from turnwright_core.limits import (
    CALIBRATION_MAX,
    CHUNK_BYTES,
    EXPLAINED_PIECES_MAX,
    NAME_CHARS_MAX,
    PROMPT_EDITS_MAX,
    VIEW_CHANGES_MAX,
    WRITES_MAX,
)
from turnwright_core.packet_values import PacketMessage
from turnwright_core.text import scheme_of
from turnwright_core.wire.entries import write_from_pb
from turnwright_core.wire.owner_calls import assemble_from_pb, check_budget_from_pb, check_to_pb

# Validation of requests.


def check_assemble(call: AssembleRequest) -> None:
    """Raises InvalidError that names the field."""
    for field, name in (("project", call.project), ("run", call.run)):
        if not name:
            raise invalid(field, f"`{field}` is missing.")
        check_chars(field, name, NAME_CHARS_MAX)
    for field, number in (("turn", call.turn), ("loop", call.loop), ("context_length", call.context_length)):
        if number < 1:
            raise invalid(field, f"`{field}` must be at least 1.")
    if not isfinite(call.calibration) or not 0 <= call.calibration <= CALIBRATION_MAX:
        raise invalid("calibration", f"`calibration` must be from 0 to {CALIBRATION_MAX:g}.")
    check_count("view_changes", len(call.view_changes), VIEW_CHANGES_MAX)
    check_count("edits", len(call.edits), PROMPT_EDITS_MAX)
    check_edits(call.edits)
    check_kept_images(call.edits)


SERVICE_NAME: Final = "turnwright.assembler.v1.AssemblerService"


BESIDE_REPORT_BYTES_MAX: Final = CHUNK_BYTES // 2
"""Maximum bytes of the messages in the part with the report, which needs some room itself."""

_BEHIND: Final = 2**40
"""A position that no entry has."""

_OVERHEAD_BYTES: Final = 16
"""Maximum overhead of a piece on the wire, besides its text."""


class AssemblerServicer(assembler_service_pb2_grpc.AssemblerServiceServicer):
    """The rpcs of the assembler."""

    def __init__(self, assembler: Assembler, explainer: Explainer) -> None:
        self._assembler = assembler
        self._explainer = explainer

    async def Assemble(  # type: ignore[override]
        self, call: AssembleRequest, context: object
    ) -> AsyncIterator[AssembleResponse]:
        """The messages in parts, then the report, with the last of them if they fit into one message with it."""
        check_assemble(call)
        assembled = await self._assembler.assemble(call)
        held: list[PacketMessage] = []
        size = 0
        for role, pieces in assembled.messages:
            for part, part_bytes in _parts(pieces):
                held.append(PacketMessage(role, part, assembled.shows))
                size += part_bytes
                if size > BESIDE_REPORT_BYTES_MAX:
                    for one in held:
                        yield AssembleResponse((one,))
                    held, size = [], 0
        yield AssembleResponse(tuple(held), assembled.report)

    async def CheckBudget(
        self, request: budget_pb2.CheckBudgetRequest, context: object
    ) -> budget_pb2.CheckBudgetResponse:
        """What to summarize if the results of a turn are too large."""
        call = check_budget_from_pb(request)
        check_assemble(call)
        return check_to_pb(await self._assembler.check(call))

    async def Explain(
        self, request: assembler_service_pb2.ExplainRequest, context: object
    ) -> assembler_service_pb2.ExplainResponse:
        check_count("pieces_max", request.pieces_max, EXPLAINED_PIECES_MAX)
        check_count("writes", len(request.writes), WRITES_MAX)
        packet = assemble_from_pb(request.assemble)
        check_assemble(packet)
        new = [_new_entry(index, write_from_pb(write), packet) for index, write in enumerate(request.writes)]
        explanation = await self._explainer.explain(request, packet, new)
        return assembler_service_pb2.ExplainResponse(explanation=explanation)


def _new_entry(place: int, write: EntryWrite, packet: AssembleRequest) -> Entry:
    """A new entry as a turn would have it, behind all others."""
    change = write.change
    if not isinstance(change, SetEntry):
        raise invalid(f"writes[{place}]", "A turn that has not begun can only set new entries.")
    path, body = write.path.replace("{turn}", str(packet.turn)), change.body or ""
    visibility = change.visibility or change.initial_visibility or Visibility.VISIBLE
    return Entry(
        path, scheme_of(path) or "", "", body, len(body.encode(errors="replace")), change.attributes_json or "{}",
        visibility, change.state or State.RESOLVED, change.outcome or "", write.writer,
        packet.turn if write.turn is None else write.turn, packet.loop,
        _BEHIND + place, 1, 0, "", 0,
    )  # fmt: skip


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

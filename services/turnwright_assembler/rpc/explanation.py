"""Explain on the wire: its request decoded, an explanation encoded within the size of an answer."""

from __future__ import annotations

from typing import Final

from turnwright.assembler.v1 import assembler_service_pb2
from turnwright.types.v1 import explanation_pb2 as pb

from turnwright_assembler.app.explaining import ExplainRequest
from turnwright_assembler.domain.explanation import (
    Explanation,
    FittingStep,
    KindTotal,
    Piece,
    PrefixBreak,
    with_largest,
)
from turnwright_assembler.ports import PastMoment
from turnwright_assembler.rpc.checks import check_assemble
from turnwright_core.checks import check_count, invalid
from turnwright_core.entries import Entry, EntryWrite, SetEntry, State, Visibility
from turnwright_core.limits import EXPLAINED_PIECES_MAX, PAGE_BYTES_MAX, WRITES_MAX
from turnwright_core.owner_calls import AssembleCall
from turnwright_core.text import scheme_of
from turnwright_core.wire.codec import codec, each
from turnwright_core.wire.entries import cursor_from_pb, cursor_to_pb, write_from_pb
from turnwright_core.wire.owner_calls import assemble_from_pb

STEP_PATHS_MAX: Final = 100
"""Paths that a step lists."""

_BEHIND: Final = 2**40
"""A position that no entry has."""


def explain_request_from(request: assembler_service_pb2.ExplainRequest) -> ExplainRequest:
    """Decode a request. Raises InvalidError that names the field."""
    check_count("pieces_max", request.pieces_max, EXPLAINED_PIECES_MAX)
    check_count("writes", len(request.writes), WRITES_MAX)
    packet = assemble_from_pb(request.assemble)
    check_assemble(packet)
    return ExplainRequest(
        packet=packet,
        at=_moment(request) if request.HasField("at") else None,
        is_sent=request.sent,
        before_turn=request.before_turn,
        new=tuple(_new(index, write_from_pb(write), packet) for index, write in enumerate(request.writes)),
    )


def _new(place: int, write: EntryWrite, packet: AssembleCall) -> Entry:
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


def _moment(request: assembler_service_pb2.ExplainRequest) -> PastMoment:
    match request.at.WhichOneof("at"):
        case "cursor":
            return PastMoment(cursor=cursor_from_pb(request.at.cursor))
        case "packet_of_turn":
            return PastMoment(packet_of_turn=request.at.packet_of_turn)
    raise invalid("at", "Set `cursor` or `packet_of_turn` of the moment.")


def _step_to_pb(step: FittingStep) -> pb.PacketStep:
    paths = step.paths[:STEP_PATHS_MAX]
    return pb.PacketStep(name=step.name, entries=len(step.paths), tokens=step.tokens, excess=step.excess, paths=paths)


_to_pb, _ = codec(
    Explanation,
    pb.PacketExplanation,
    cursor=(cursor_to_pb, cursor_from_pb),
    kinds=each(*codec(KindTotal, pb.KindTotal)),
    steps=(lambda steps: map(_step_to_pb, steps), tuple),
    prefix=codec(PrefixBreak, pb.PrefixBreak),
    pieces=each(*codec(Piece, pb.ExplainedPiece, only=tuple(pb.ExplainedPiece.DESCRIPTOR.fields_by_name))),
)


def explanation_to_pb(explained: Explanation, pieces_max: int) -> pb.PacketExplanation:
    """The explanation with its largest pieces: at most `pieces_max`, and about PAGE_BYTES_MAX bytes."""
    shown = with_largest(explained, pieces_max)
    while shown.pieces and sum(map(_weight, shown.pieces)) > PAGE_BYTES_MAX:
        shown = with_largest(explained, len(shown.pieces) // 2)
    return _to_pb(shown)


def _weight(piece: Piece) -> int:
    return 60 + 3 * len(piece.path) + len(piece.why) + 3 * len(piece.healed)

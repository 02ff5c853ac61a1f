"""Explain on the wire: its request decoded, an explanation encoded within the size of an answer."""

from __future__ import annotations

from typing import Final

from turnwright.assembler.v1 import assembler_service_pb2
from turnwright.types.v1 import explanation_pb2 as pb

from turnwright_assembler.app.explaining import ExplainRequest
from turnwright_assembler.domain.explanation import Explanation, Form, PieceKind, PlacedPiece, largest, totals
from turnwright_assembler.ports import PastMoment
from turnwright_assembler.rpc.checks import check_assemble
from turnwright_core.checks import check_count, invalid
from turnwright_core.entries import Entry, EntryWrite, SetEntry, State, Visibility
from turnwright_core.limits import EXPLAINED_PIECES_MAX, PAGE_BYTES_MAX, WRITES_MAX
from turnwright_core.owner_calls import AssembleCall
from turnwright_core.text import scheme_of
from turnwright_core.wire.entries import cursor_from_pb, cursor_to_pb, write_from_pb
from turnwright_core.wire.owner_calls import assemble_from_pb

STEP_PATHS_MAX: Final = 100
"""Paths that a step lists."""

_BEHIND: Final = 2**40
"""A position that no entry has."""

_FORMS: Final = {
    Form.WHOLE: pb.PIECE_FORM_WHOLE,
    Form.SUMMARIZED: pb.PIECE_FORM_SUMMARIZED,
    Form.STUB: pb.PIECE_FORM_STUB,
    Form.LEFT_OUT: pb.PIECE_FORM_LEFT_OUT,
}


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


def explanation_to_pb(explained: Explanation, pieces_max: int) -> pb.PacketExplanation:
    """The explanation with its largest pieces: at most `pieces_max`, and about PAGE_BYTES_MAX bytes."""
    shown = largest(explained.pieces, pieces_max)
    while shown and sum(map(_weight, shown)) > PAGE_BYTES_MAX:
        shown = largest(explained.pieces, len(shown) // 2)
    prefix = explained.prefix
    at = prefix.piece if prefix else None
    return pb.PacketExplanation(
        ceiling=explained.ceiling,
        tokens=explained.tokens,
        bytes=explained.bytes_,
        digest=explained.digest,
        stored_digest=explained.stored_digest,
        cursor=cursor_to_pb(explained.cursor) if explained.cursor else None,
        kinds=[
            pb.KindTotal(kind=_kind(total.kind), pieces=total.pieces, tokens=total.tokens)
            for total in totals(explained.pieces)
        ],
        steps=[
            pb.PacketStep(
                name=step.name,
                entries=len(step.paths),
                tokens=step.tokens,
                excess=step.excess,
                paths=step.paths[:STEP_PATHS_MAX],
            )
            for step in explained.steps
        ],
        prefix=pb.PrefixBreak(
            before_turn=prefix.before_turn,
            bytes=prefix.bytes_,
            tokens=prefix.tokens,
            path=at.path if at else "",
            kind=_kind(at.kind) if at else pb.PIECE_KIND_UNSPECIFIED,
            section=at.section if at else "",
        )
        if prefix
        else None,
        pieces=map(_piece, shown),
        pieces_left_out=len(explained.pieces) - len(shown),
        tokens_left_out=sum(one.tokens for one in explained.pieces) - sum(one.tokens for one in shown),
        gaps=explained.gaps,
    )


def _weight(one: PlacedPiece) -> int:
    return 60 + 3 * len(one.piece.path) + len(one.piece.why) + 3 * len(one.piece.healed)


def _kind(kind: PieceKind) -> pb.PieceKind.ValueType:
    return pb.PieceKind.Value(f"PIECE_KIND_{kind.name}")


def _piece(one: PlacedPiece) -> pb.ExplainedPiece:
    piece = one.piece
    return pb.ExplainedPiece(
        path=piece.path,
        kind=_kind(piece.kind),
        section=piece.section,
        tokens=one.tokens,
        begin=one.begin,
        bytes=one.bytes_,
        form=_FORMS[piece.form],
        why=piece.why,
        reduced_by=piece.reduced_by,
        reduced_in_turn=piece.reduced_in_turn,
        whole_tokens=piece.whole_tokens,
        healed=piece.healed,
    )

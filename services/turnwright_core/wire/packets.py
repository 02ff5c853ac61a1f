"""Protobuf conversion of packet pieces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from turnwright.types.v1 import packet_pb2

from turnwright_core.delta_encoding import Copied

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class _Pieces(Protocol):
    """A message with pieces, of either service."""

    @property
    def pieces(self) -> Iterable[packet_pb2.PacketPiece]: ...


def piece_to_pb(piece: Copied | str, shows: Mapping[str, str] = _NOTHING) -> packet_pb2.PacketPiece:
    """Encode; `shows` maps texts that show the body of an entry to its path."""
    if not isinstance(piece, str):
        return packet_pb2.PacketPiece(copied=packet_pb2.CopiedPieces(first=piece.first, count=piece.count))
    path = shows.get(piece)
    return packet_pb2.PacketPiece(text=piece, shows=path) if path else packet_pb2.PacketPiece(text=piece)


def piece_from_pb(piece: packet_pb2.PacketPiece) -> Copied | str:
    """Decode; an empty piece is an empty text."""
    return Copied(piece.copied.first, piece.copied.count) if piece.HasField("copied") else piece.text


def shown_in(holders: Iterable[_Pieces]) -> dict[str, str]:
    """The texts that show the body of an entry, with its path."""
    return {piece.text: piece.shows for one in holders for piece in one.pieces if piece.shows}

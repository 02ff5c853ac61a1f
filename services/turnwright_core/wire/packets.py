"""Pieces of packets on the wire."""

from __future__ import annotations

from turnwright.types.v1 import packet_pb2

from turnwright_core.differences import Copied


def piece_to_pb(piece: Copied | str) -> packet_pb2.PacketPiece:
    """Encode."""
    if isinstance(piece, str):
        return packet_pb2.PacketPiece(text=piece)
    return packet_pb2.PacketPiece(copied=packet_pb2.CopiedPieces(first=piece.first, count=piece.count))


def piece_from_pb(piece: packet_pb2.PacketPiece) -> Copied | str:
    """Decode; a piece without anything is an empty text."""
    return Copied(piece.copied.first, piece.copied.count) if piece.HasField("copied") else piece.text

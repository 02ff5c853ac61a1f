"""Protobuf conversion of packet pieces, and of stored packets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from turnwright.types.v1 import packet_pb2

from turnwright_core.checks import invalid
from turnwright_core.delta_encoding import Copied
from turnwright_core.packet_values import PacketMessage

if TYPE_CHECKING:
    from turnwright.turns.v1 import turn_service_pb2

ROLES: Final[Mapping[int, str]] = {
    number: name.removeprefix("PACKET_ROLE_").lower() for name, number in packet_pb2.PacketRole.items() if number
}
"""The words of roles, which digests and stored packets have, by their numbers."""
_NUMBERS: Final[Mapping[str, Any]] = {word: number for number, word in ROLES.items()}
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def piece_to_pb(piece: Copied | str, shows: Mapping[str, str] = _NOTHING) -> packet_pb2.PacketPiece:
    """Encode; `shows` maps texts that show the body of an entry to its path."""
    if not isinstance(piece, str):
        return packet_pb2.PacketPiece(copied=packet_pb2.CopiedPieces(first=piece.first, count=piece.count))
    path = shows.get(piece)
    return packet_pb2.PacketPiece(text=piece, shows=path) if path else packet_pb2.PacketPiece(text=piece)


def piece_from_pb(piece: packet_pb2.PacketPiece) -> Copied | str:
    return Copied(piece.copied.first, piece.copied.count) if piece.HasField("copied") else piece.text


def role_to_pb(word: str) -> packet_pb2.PacketRole.ValueType:
    number: packet_pb2.PacketRole.ValueType = _NUMBERS[word]
    return number


def role_from_pb(number: int) -> str:
    """The word of a role. Raises INVALID_FIELD for none, and for one of a later version."""
    word = ROLES.get(number)
    if word is None:
        raise invalid("packet.role", f"role must be one of {', '.join(ROLES.values())}.")
    return word


def packet_message_to_pb(message: PacketMessage) -> packet_pb2.PacketMessage:
    pieces = map(partial(piece_to_pb, shows=message.shows), message.pieces)
    return packet_pb2.PacketMessage(role=role_to_pb(message.role), pieces=pieces)


def packet_message_from_pb(message: packet_pb2.PacketMessage) -> PacketMessage:
    shows = {piece.text: piece.shows for piece in message.pieces if piece.shows}
    return PacketMessage(role_from_pb(message.role), tuple(map(piece_from_pb, message.pieces)), shows)


class PacketParts:
    """A stored packet while it is read. Mutable."""

    def __init__(self) -> None:
        self.note = ""
        self.is_whole = False
        self._messages: dict[int, tuple[str, list[str], list[int]]] = {}

    def add(self, part: turn_service_pb2.ReadPacketResponse) -> None:
        _, texts, piece_chars = self._messages.setdefault(part.index, (role_from_pb(part.role), [], []))
        texts.append(part.text)
        piece_chars.extend(part.piece_chars)
        self.note, self.is_whole = self.note or part.note, part.last

    def messages(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Roles, each with the pieces that its message was stored in."""
        messages = [message for _, message in sorted(self._messages.items())]
        return tuple((role, _divided("".join(texts), piece_chars)) for role, texts, piece_chars in messages)


def _divided(text: str, piece_chars: Iterable[int]) -> tuple[str, ...]:
    return tuple(text[begin:end] for begin, end in pairwise([0, *accumulate(piece_chars)]))

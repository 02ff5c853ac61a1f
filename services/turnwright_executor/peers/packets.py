"""Packets in the store's format: delta-encoded pieces, and a note for an owner that sends the packet again.

Source: architecture 3 (what the model was sent), 11 (the stored packet is sent again); C22.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from math import isfinite
from typing import Final

from msgspec import Struct, json
from msgspec.structs import astuple
from turnwright.turns.v1 import turn_service_pb2
from turnwright_values.assembler import PacketReport
from turnwright_values.types import CompressionStrength, Cursor, TokenSource

from turnwright_core.chat.prompt_edits import PromptEdit
from turnwright_core.delta_encoding import Copied
from turnwright_core.packet_digest import packet_digest
from turnwright_core.packet_values import PacketMessage, TurnPacket
from turnwright_core.wire.packets import PacketParts
from turnwright_executor.domain.footprint import chars_of
from turnwright_executor.domain.tokens import TokenRate
from turnwright_executor.ports.packets import AssembledMessage, Packet


def turn_packet(turn: int, packet: Packet, base_turn: int) -> TurnPacket:
    """The packet as it is stored: a delta of the packet of `base_turn`, or whole if it copies nothing of it."""
    if not any(isinstance(piece, Copied) for message in packet.messages for piece in message.delta.pieces):
        base_turn = 0
    messages = tuple(
        one.delta if base_turn else PacketMessage(one.role, one.pieces, one.delta.shows) for one in packet.messages
    )
    return TurnPacket(turn, messages, base_turn, _note_of(packet))


class PacketNote(Struct, frozen=True, omit_defaults=True):
    """What is stored with a packet: what the turn's result needs to know of it, and how much the turn may add."""

    tokens: int = 0
    cursor: tuple[str, int, int, int] = ("", 0, 0, 0)
    calibration: float = 0.0
    render_version: str = ""
    token_source: TokenSource = TokenSource.UNSPECIFIED
    compression: CompressionStrength = CompressionStrength.UNSPECIFIED
    ceiling: int = 0
    """0: unknown; then the assembler is asked what fits."""
    effects_chars: float = 0
    edits: tuple[PromptEdit, ...] = ()


_NOTES: Final = json.Decoder(PacketNote)


def packet_note(text: str) -> PacketNote:
    return _NOTES.decode(text or "{}")


def _note_of(packet: Packet) -> str:
    report = packet.report
    effects_chars = chars_of(report.effects)
    is_bounded = isfinite(effects_chars)
    note = PacketNote(
        tokens=report.tokens,
        cursor=astuple(report.cursor),
        calibration=packet.rate.calibration,
        render_version=report.render_version,
        token_source=packet.rate.source,
        compression=report.compression,
        ceiling=report.ceiling if is_bounded else 0,
        effects_chars=effects_chars if is_bounded else 0,
        edits=report.edits,
    )
    return json.encode(note).decode()


async def packet_from_parts(parts: AsyncIterator[turn_service_pb2.ReadPacketResponse]) -> Packet | None:
    """The stored packet; None if its last parts are missing.

    Its effects were committed with it, so it has none.
    """
    stored = PacketParts()
    async for part in parts:
        stored.add(part)
    if not stored.is_whole:
        return None
    note, messages = packet_note(stored.note), stored.messages()
    return Packet(
        messages=tuple(AssembledMessage(role, pieces, PacketMessage(role, pieces)) for role, pieces in messages),
        report=PacketReport(
            digest=packet_digest(messages),
            tokens=note.tokens,
            ceiling=note.ceiling,
            chars=sum(len(piece) for _, pieces in messages for piece in pieces),
            cursor=Cursor(*note.cursor),
            compression=note.compression,
            edits=note.edits,
        ),
        effects_chars=note.effects_chars,
        rate=TokenRate(note.calibration, note.token_source),
    )

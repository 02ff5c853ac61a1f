"""Packets in the store's format: delta-encoded pieces, and a note for an owner that sends the packet again.

Source: architecture 3 (what the model was sent), 11 (the stored packet is sent again); C22.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from math import isfinite
from typing import Any, Final

from msgspec import Struct, to_builtins
from msgspec.structs import astuple
from turnwright.store.v1 import read_pb2

from turnwright_core.chat.prompt_edits import PromptEdit
from turnwright_core.converters import converter
from turnwright_core.delta_encoding import Copied
from turnwright_core.entries import Cursor
from turnwright_core.owner_calls import StoredMessage, TurnPacket
from turnwright_core.packet_digest import packet_digest
from turnwright_core.runs import CompressionStrength, TokenSource
from turnwright_core.wire.packets import PacketParts
from turnwright_executor.domain.footprint import chars_of
from turnwright_executor.domain.tokens import TokenRate
from turnwright_executor.ports.packets import Packet, PacketMessage

_edits_of: Final = converter(tuple[PromptEdit, ...])


def turn_packet(turn: int, packet: Packet, base_turn: int) -> TurnPacket:
    """The packet as it is stored: a delta of the packet of `base_turn`, or whole if it copies nothing of it."""
    if not any(isinstance(piece, Copied) for message in packet.messages for piece in message.changes):
        base_turn = 0
    messages = tuple(
        StoredMessage(message.role, message.changes if base_turn else message.pieces) for message in packet.messages
    )
    return TurnPacket(turn, messages, base_turn, _note_of(packet), packet.shows)


def _note_of(packet: Packet) -> str:
    """What the turn's result needs to know about the packet, and how much the turn may add."""
    note: dict[str, Any] = {"tokens": packet.tokens, "cursor": astuple(packet.cursor)}
    note |= {"calibration": packet.rate.calibration, "render_version": packet.render_version}
    note |= {"token_source": int(packet.rate.source)} if packet.rate.source else {}
    if packet.compression:
        note |= {"compression": packet.compression}
    if isfinite(effects_chars := chars_of(packet.effects)):
        note |= {"ceiling": packet.ceiling, "effects_chars": effects_chars}
    if packet.checkpoint:
        note["checkpoint"] = packet.checkpoint
    if packet.edits:
        note["edits"] = to_builtins(packet.edits)
    return json.dumps(note, separators=(",", ":"))


class PacketNote(Struct, frozen=True):
    """What explains a stored packet."""

    cursor: Cursor | None = None
    calibration: float = 0.0
    render_version: str = ""
    edits: tuple[PromptEdit, ...] = ()


def packet_note(text: str) -> PacketNote:
    """The note of a stored packet."""
    known: dict[str, Any] = json.loads(text) if text else {}
    cursor = Cursor(*known["cursor"]) if "cursor" in known else None
    edits = _edits_of(known.get("edits", ()))
    return PacketNote(cursor, known.get("calibration", 0.0), known.get("render_version", ""), edits)


async def packet_from_parts(parts: AsyncIterator[read_pb2.ReadPacketResponse]) -> Packet | None:
    """The stored packet; None if its last parts are missing.

    Its effects were committed with it, so it has none.
    """
    stored = PacketParts()
    async for part in parts:
        stored.add(part)
    if not stored.is_whole:
        return None
    return _packet([PacketMessage(role, pieces, pieces) for role, pieces in stored.messages()], stored.note)


def _packet(messages: Iterable[PacketMessage], note: str) -> Packet:
    known: dict[str, Any] = json.loads(note) if note else {"tokens": 0, "cursor": ("", 0, 0, 0)}
    frozen = tuple(messages)
    return Packet(
        messages=frozen,
        effects=(),
        overflow=False,
        digest=packet_digest((message.role, message.pieces) for message in frozen),
        tokens=known["tokens"],
        # 0 is unknown: then the assembler is asked what fits.
        ceiling=known.get("ceiling", 0),
        cursor=Cursor(*known["cursor"]),
        rate=TokenRate(known.get("calibration", 0.0), TokenSource(known.get("token_source", 0))),
        effects_chars=known.get("effects_chars", 0),
        compression=CompressionStrength(known.get("compression", 0)),
        edits=_edits_of(known.get("edits", ())),
    )

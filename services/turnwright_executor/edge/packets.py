"""What the model is sent, as the store keeps it: blocks that neighbours share, and a note for whoever sends it again.

Source: architecture 3 (what the model was sent), 11 (the stored packet is sent again); C22.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import astuple
from typing import Any

from turnwright.store.v1 import read_pb2, write_pb2

from turnwright_core.entries import Cursor
from turnwright_executor.domain.blocks import Block, blocks_of
from turnwright_executor.ports import Packet, PacketMessage

MessageBlocks = Sequence[tuple[str, Sequence[Block]]]
"""Roles, each with the blocks of its message."""


def message_blocks(packet: Packet) -> MessageBlocks:
    """The packet in blocks."""
    return [(message.role, blocks_of(message.text)) for message in packet.messages]


def digests_of(messages: MessageBlocks) -> frozenset[bytes]:
    """The digests of all blocks."""
    return frozenset(block.digest for _, blocks in messages for block in blocks)


def packet_to_pb(turn: int, packet: Packet, messages: MessageBlocks, known: frozenset[bytes]) -> write_pb2.PacketRecord:
    """The packet for the store, without the texts of blocks that it knows."""
    return write_pb2.PacketRecord(
        turn=turn,
        messages=[
            write_pb2.PacketMessage(role=role, blocks=[_block_to_pb(block, known) for block in blocks])
            for role, blocks in messages
        ],
        note=_note_of(packet),
    )


def _block_to_pb(block: Block, known: frozenset[bytes]) -> write_pb2.PacketBlock:
    return write_pb2.PacketBlock(digest=block.digest, text=None if block.digest in known else block.text)


def _note_of(packet: Packet) -> str:
    """What a turn's result says of the packet, beyond its text."""
    note = {"digest": packet.digest, "tokens": packet.tokens, "cursor": astuple(packet.cursor)}
    return json.dumps(note, separators=(",", ":"))


async def packet_from_parts(parts: AsyncIterator[read_pb2.ReadPacketResponse]) -> Packet:
    """The packet that was stored; its effects were committed with it, so it has none any more."""
    roles: dict[int, str] = {}
    texts: dict[int, list[str]] = {}
    note = ""
    async for part in parts:
        note = note or part.note
        roles.setdefault(part.index, part.role)
        texts.setdefault(part.index, []).append(part.text)
    return _packet([PacketMessage(roles[index], "".join(texts[index])) for index in sorted(texts)], note)


def _packet(messages: Iterable[PacketMessage], note: str) -> Packet:
    known: dict[str, Any] = json.loads(note) if note else {"digest": "", "tokens": 0, "cursor": ("", 0, 0, 0)}
    return Packet(
        messages=tuple(messages),
        effects=(),
        overflow=False,
        digest=known["digest"],
        tokens=known["tokens"],
        ceiling=0,
        cursor=Cursor(*known["cursor"]),
    )

"""Storing and reading packets.

Source: architecture 3 (what the model was sent), 11 (the stored packet is sent again); rows RU197, RU199; C22.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Container, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright.turns.v1 import turn_service_pb2 as pb

from turnwright_core.checks import transition_forbidden
from turnwright_core.delta_encoding import decode
from turnwright_core.errors import Reason, fault, run_not_found
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.packet_values import TurnPacket
from turnwright_core.wire.packets import role_to_pb
from turnwright_store.app import quotas
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.packets import (
    BLOCK_CHARS_MIN,
    CHAIN_MAX,
    Layout,
    MessageParts,
    base_missing_error,
    check_copies,
    decode_layout,
    digest_of,
    encode_layout,
    layout_ids,
    layout_text,
    piece_id,
    piece_turn_and_index,
)
from turnwright_store.ports import Database, Transaction
from turnwright_store.sql import packets as rows
from turnwright_store.sql.forks import run_of_turn
from turnwright_store.sql.packets import PacketRow, block_texts, compressed_texts, load_texts, stored_blocks
from turnwright_store.sql.runs import RunHead, get_run

_PIECES_AT_ONCE: Final = 100
_READ_CHARS: Final = 1024 * 1024
"""Characters after which a reader gives its connection back."""


def record_packet(tx: Transaction, run: RunHead, packet: TurnPacket) -> None:
    """Store a validated packet of the open turn; replaces an earlier one of the turn.

    Raises PACKET_BASE_MISSING, TRANSITION_FORBIDDEN, QUOTA_EXCEEDED, and InvalidError for copies that the base does not
    have.
    """
    if not packet.turn or packet.turn != run.turn_open:
        message = f"Turn {packet.turn} is not open; turn {run.turn_open} is (0: none)."
        raise transition_forbidden("packet", run.turn_open, packet.turn, message)
    connection = tx.connection
    quotas.reserve(tx, run, packet.turn, packet.reserve_tokens, packet.reserve_cost_usd)
    if packet.again:
        if not rows.call_again(connection, run.id, packet.turn):
            message = f"Turn {packet.turn} has no packet that could be sent again."
            raise transition_forbidden("packet", 0, packet.turn, message)
        return
    base, calls = _base(connection, run, packet)
    pieces, ids = _pieces_to_store(connection, run, packet, base)
    row = _row(connection, run.id, packet, _parts(packet, ids), base)
    rows.add_packet(connection, run.id, replace(row, calls=calls + 1), packet.note, pieces)


def _pieces_to_store(
    connection: Connection, run: RunHead, packet: TurnPacket, base: PacketRow | None
) -> tuple[bytes | None, dict[str, int]]:
    """The pieces of a packet that are stored with it, and the numbers of all that it names by their texts."""
    texts = dict.fromkeys(packet.texts)
    blocks = {digest_of(text): text for text in texts if len(text) >= BLOCK_CHARS_MIN and text not in packet.shows}
    known = {} if packet.base_turn or base is None else _pieces_in(connection, run, base, texts)
    shared = frozenset(blocks.values())
    new = [text for text in texts if text not in known and text not in shared]
    ids = stored_blocks(connection, run.project_id, blocks)
    numbers = known | dict(zip(new, count(piece_id(packet.turn, 0))))
    numbers |= {text: ids[digest] for digest, text in blocks.items()}
    return compressed_texts(connection, run.id, new, packet.shows), numbers


def _pieces_in(connection: Connection, run: RunHead, base: PacketRow, wanted: Container[str]) -> dict[str, int]:
    """The ids of texts that another packet already has, for a packet that was sent whole."""
    pieces = [piece for piece in dict.fromkeys(_ids(connection, run.id, base)) if piece < 0]
    texts = _texts(connection, run.id, RunRef(run.project, run.alias), pieces)
    return {text: piece for piece, text in zip(pieces, texts, strict=True) if text in wanted}


def _base(connection: Connection, run: RunHead, packet: TurnPacket) -> tuple[PacketRow | None, int]:
    """The packet of an earlier turn that this one may copy from; a packet of the same turn is deleted.

    And how many calls were made with that. Raises PACKET_BASE_MISSING.
    """
    before = rows.latest_packets(connection, run.id, packet.turn, 2)
    calls = 0
    if before and before[0].turn == packet.turn:
        calls = before[0].calls
        rows.remove_packet(connection, run.id, packet.turn)
        before = before[1:]
    base = before[0] if before else None
    if packet.base_turn and (base is None or base.turn != packet.base_turn):
        raise base_missing_error(run.alias, packet.base_turn)
    return base, calls


def _row(
    connection: Connection, run_id: int, packet: TurnPacket, parts: Sequence[MessageParts], base: PacketRow | None
) -> PacketRow:
    """The stored form of a layout: the difference to the previous one, unless it ends a chain.

    A packet with copies is stored as received, without reading what it copies: the work is proportional to what is new.
    """
    if packet.base_turn and base:
        check_copies(packet, base.length)
        if base.depth < CHAIN_MAX:
            return PacketRow(packet.turn, base.turn, base.depth + 1, packet.length, layout_text(parts))
    ids = _ids(connection, run_id, base) if base else []
    layout = tuple((role, tuple(decode(pieces, ids))) for role, pieces in parts)
    if base is None or base.depth == CHAIN_MAX:
        return PacketRow(packet.turn, 0, 1, packet.length, encode_layout(layout, ()))
    return PacketRow(packet.turn, base.turn, base.depth + 1, packet.length, encode_layout(layout, ids))


def _ids(connection: Connection, run_id: int, row: PacketRow) -> list[int]:
    return layout_ids(_layout(rows.latest_packets(connection, run_id, row.turn, row.depth)))


def _parts(packet: TurnPacket, ids: Mapping[str, int]) -> list[MessageParts]:
    """The messages with numbers instead of texts."""
    return [
        (message.role, [ids[piece] if isinstance(piece, str) else piece for piece in message.pieces])
        for message in packet.messages
    ]


def _layout(chain: Sequence[PacketRow]) -> Layout:
    layout: Layout = ()
    for row in reversed(chain):
        layout = decode_layout(row.layout, layout_ids(layout) if row.base_turn else ())
    return layout


class PacketLayout(Struct, frozen=True):
    """The layout of a turn's packet, and the run that it was stored in."""

    run_id: int
    turn: int
    layout: Layout


def find_packet(connection: Connection, run: RunHead, turn: int) -> PacketLayout | None:
    """The packet of a turn, also of an inherited turn; 0: the latest of the run itself. None if none is stored."""
    home = run_of_turn(connection, run.id, turn) if turn else run.id
    if home is None:
        return None
    found = rows.latest_packets(connection, home, turn or run.turn, CHAIN_MAX)
    if not found or turn not in (0, found[0].turn):
        return None
    return PacketLayout(home, found[0].turn, _layout(found[: found[0].depth]))


def packet_messages(connection: Connection, run: RunHead, turn: int) -> tuple[tuple[str, str], ...] | None:
    """The packet of a turn: role and text of each message. None if none is stored."""
    found = find_packet(connection, run, turn)
    if found is None:
        return None
    address = RunRef(run.project, run.alias)
    return tuple((role, "".join(_texts(connection, found.run_id, address, ids))) for role, ids in found.layout)


def _texts(connection: Connection, run_id: int, address: RunRef, pieces: Sequence[int]) -> Iterator[str]:
    """The texts of pieces. Raises RUN_NOT_FOUND if they were deleted with a run meanwhile."""
    for begin in range(0, len(pieces), _PIECES_AT_ONCE):
        part = pieces[begin : begin + _PIECES_AT_ONCE]
        found: dict[int, str] = block_texts(connection, sorted({piece for piece in part if piece > 0}))
        wanted: dict[int, set[int]] = {}
        for turn, place in map(piece_turn_and_index, (piece for piece in part if piece < 0)):
            wanted.setdefault(turn, set()).add(place)
        try:
            for turn, texts in load_texts(connection, run_id, wanted).items():
                found |= {piece_id(turn, place): text for place, text in texts.items()}
            yield from [found[piece] for piece in part]
        except KeyError:
            raise run_not_found(address.project, address.run) from None


async def read_packet(database: Database, address: RunRef, turn: int) -> AsyncIterator[pb.ReadPacketResponse]:
    """A packet, byte for byte, in parts of about 256 KiB; an empty message is one empty part.

    Raises RUN_NOT_FOUND, TURN_NOT_FOUND.
    """

    def begin(connection: Connection) -> tuple[PacketLayout, str]:
        run = get_run(connection, address.project, address.run)
        found = find_packet(connection, run, turn)
        if found is None:
            message = f"There is no packet of turn {turn} in {address.run}."
            raise fault(Reason.TURN_NOT_FOUND, message, run=address.run, turn=turn)
        return found, rows.packet_note(connection, found.run_id, found.turn)

    found, note = await database.read(begin)
    part: pb.ReadPacketResponse | None = None
    for index, (role, pieces) in enumerate(found.layout):
        done = 0
        while not done or done < len(pieces):
            some = partial(_some_texts, run_id=found.run_id, address=address, pieces=pieces[done:])
            texts = await database.read(some)
            done += max(1, len(texts))
            piece_chars = [*map(len, texts)]
            for piece in split_text("".join(texts)):
                if part:
                    yield part
                part = pb.ReadPacketResponse(
                    index=index, role=role_to_pb(role), text=piece, note=note, piece_chars=piece_chars
                )
                note, piece_chars = "", []
    if part:
        part.last = True
        yield part


def _some_texts(connection: Connection, run_id: int, address: RunRef, pieces: Sequence[int]) -> list[str]:
    """The texts of the first pieces, as many as one read should return."""
    texts: list[str] = []
    chars = 0
    for text in _texts(connection, run_id, address, pieces):
        texts.append(text)
        chars += len(text)
        if chars > _READ_CHARS:
            break
    return texts


def split_text(text: str) -> Iterator[str]:
    """A text in pieces of at most 256 KiB of UTF-8, without splitting characters; an empty text is one empty piece."""
    data = text.encode()
    begin = end = 0
    while not end or end < len(data):
        begin, end = end, min(end + CHUNK_BYTES, len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        yield data[begin:end].decode()
        if not data:
            return

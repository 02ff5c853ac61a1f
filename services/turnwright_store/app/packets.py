"""Storing and reading packets.

Source: architecture 3 (what the model was sent), 11 (the stored packet is sent again); rows RU197, RU199; C22.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from turnwright_core.differences import whole
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.owner_calls import TurnPacket
from turnwright_store.app.forks import turn_not_found
from turnwright_store.app.read_view import RunRef
from turnwright_store.domain.packets import (
    CHAIN_MAX,
    Layout,
    MessageParts,
    base_missing,
    check_copies,
    difference,
    digest_of,
    flat,
    restored,
    written,
)
from turnwright_store.ports import Connection, Database, Transaction
from turnwright_store.sql import packets as rows
from turnwright_store.sql.blocks import add_blocks, block_texts, known_blocks, prefetch_known
from turnwright_store.sql.forks import home_of
from turnwright_store.sql.packets import PacketRow
from turnwright_store.sql.runs import RunHead, get_run, run_not_found

_BLOCKS_A_STATEMENT: Final = 100
_READ_CHARS: Final = 1024 * 1024
"""Characters after which a reader gives its connection back."""


def record_packet(tx: Transaction, run: RunHead, packet: TurnPacket) -> None:
    """Store a validated packet of the open turn; replaces an earlier one of the turn.

    Raises PACKET_BASE_MISSING, TRANSITION_FORBIDDEN, and InvalidError for copies that the base does not have.
    """
    if not packet.turn or packet.turn != run.turn_open:
        message = f"Turn {packet.turn} is not open; turn {run.turn_open} is (0: none)."
        raise fault(
            Reason.TRANSITION_FORBIDDEN, message, **{"from": run.turn_open, "to": packet.turn, "object": "packet"}
        )
    connection = tx.connection
    if packet.again:
        if not rows.call_again(connection, run.id, packet.turn):
            message = f"Turn {packet.turn} has no packet that could be sent again."
            raise fault(Reason.TRANSITION_FORBIDDEN, message, **{"from": 0, "to": packet.turn, "object": "packet"})
        return
    latest = rows.latest_known(connection, run.id)
    if latest and latest.turn >= packet.turn:
        latest = None
    # After the latest packet there is none of this turn yet, and no call was made in it.
    calls = 1 if latest else rows.count_calls(connection, run.id, packet.turn) + 1
    texts = {digest_of(piece): piece for piece in packet.pieces if isinstance(piece, str)}
    asked = prefetch_known(connection, run.id, run.project_id, texts, packet.shows)
    base = _checked_base(run, packet, latest or _base(connection, run, packet))
    ids = known_blocks(asked)
    new = {digest: text for digest, text in texts.items() if digest not in ids}
    ids |= add_blocks(connection, run.id, run.project_id, new, packet.shows, asked)
    parts = _parts(packet, {text: ids[digest] for digest, text in texts.items()})
    rows.add_packet(connection, run.id, _row(connection, run.id, packet, parts, base), packet.note, calls)


def _base(connection: Connection, run: RunHead, packet: TurnPacket) -> PacketRow | None:
    """The packet of an earlier turn that this one may copy from; a packet of the same turn is deleted."""
    before = rows.latest_packets(connection, run.id, packet.turn, 2)
    if before and before[0].turn == packet.turn:
        rows.remove_packet(connection, run.id, packet.turn)
        before = before[1:]
    return before[0] if before else None


def _checked_base(run: RunHead, packet: TurnPacket, base: PacketRow | None) -> PacketRow | None:
    if packet.base_turn and (base is None or base.turn != packet.base_turn):
        raise base_missing(run.alias, packet.base_turn)
    return base


def _row(
    connection: Connection, run_id: int, packet: TurnPacket, parts: Sequence[MessageParts], base: PacketRow | None
) -> PacketRow:
    """The stored form of a layout: the difference to the previous one, unless it ends a chain.

    A packet with copies is stored as received, without reading what it copies: the work is proportional to what is new.
    """
    if packet.base_turn and base:
        check_copies(packet, base.length)
        if base.depth < CHAIN_MAX:
            return PacketRow(packet.turn, base.turn, base.depth + 1, packet.length, written(parts))
    ids = _ids(connection, run_id, base) if base else []
    layout = tuple((role, tuple(whole(pieces, ids))) for role, pieces in parts)
    if base is None or base.depth == CHAIN_MAX:
        return PacketRow(packet.turn, 0, 1, packet.length, difference(layout, ()))
    return PacketRow(packet.turn, base.turn, base.depth + 1, packet.length, difference(layout, ids))


def _ids(connection: Connection, run_id: int, row: PacketRow) -> list[int]:
    return flat(_layout(rows.latest_packets(connection, run_id, row.turn, row.depth)))


def _parts(packet: TurnPacket, ids: Mapping[str, int]) -> list[MessageParts]:
    """The messages with block ids instead of texts."""
    return [
        (message.role, [ids[piece] if isinstance(piece, str) else piece for piece in message.pieces])
        for message in packet.messages
    ]


def _layout(chain: Sequence[PacketRow]) -> Layout:
    layout: Layout = ()
    for row in reversed(chain):
        layout = restored(row.layout, flat(layout) if row.base_turn else ())
    return layout


def find_layout(connection: Connection, run: RunHead, turn: int) -> Layout | None:
    """The layout of a turn's packet, also of an inherited turn; None if none is stored."""
    home = home_of(connection, run.id, turn)
    if home is None:
        return None
    found = rows.latest_packets(connection, home, turn, CHAIN_MAX)
    return _layout(found[: found[0].depth]) if found and found[0].turn == turn else None


def packet_messages(connection: Connection, run: RunHead, turn: int) -> tuple[tuple[str, str], ...] | None:
    """The packet of a turn: role and text of each message. None if none is stored."""
    layout = find_layout(connection, run, turn)
    if layout is None:
        return None
    address = RunRef(run.project, run.alias)
    return tuple((role, "".join(_texts(connection, address, ids))) for role, ids in layout)


def _texts(connection: Connection, address: RunRef, ids: Sequence[int]) -> Iterator[str]:
    """The texts of blocks. Raises RUN_NOT_FOUND if they were deleted with a run meanwhile."""
    for begin in range(0, len(ids), _BLOCKS_A_STATEMENT):
        part = ids[begin : begin + _BLOCKS_A_STATEMENT]
        found = block_texts(connection, sorted(set(part)))
        if any(block not in found for block in part):
            raise run_not_found(address.project, address.run)
        for block in part:
            yield found[block]


class PacketPart(Struct, frozen=True):
    """A part of a message's text; the first one has the note that was stored with the packet."""

    index: int
    role: str
    text: str
    note: str = ""


async def read_packet(database: Database, address: RunRef, turn: int) -> AsyncIterator[PacketPart]:
    """A packet, byte for byte, in parts of about 256 KiB; an empty message is one empty part.

    Raises RUN_NOT_FOUND, TURN_NOT_FOUND.
    """

    def begin(connection: Connection) -> tuple[Layout, str]:
        run = get_run(connection, address.project, address.run)
        layout = find_layout(connection, run, turn)
        if layout is None:
            raise turn_not_found(run, turn, f"There is no packet of turn {turn} in {address.run}.")
        return layout, rows.packet_note(connection, home_of(connection, run.id, turn) or run.id, turn)

    layout, note = await database.read(begin)
    for index, (role, ids) in enumerate(layout):
        done = 0
        while not done or done < len(ids):
            texts = await database.read(partial(_some_texts, address=address, ids=ids[done:]))
            done += max(1, len(texts))
            for piece in in_pieces("".join(texts)):
                yield PacketPart(index, role, piece, note)
                note = ""


def _some_texts(connection: Connection, address: RunRef, ids: Sequence[int]) -> list[str]:
    """The texts of the first blocks, as many as one read should return."""
    texts: list[str] = []
    chars = 0
    for text in _texts(connection, address, ids):
        texts.append(text)
        chars += len(text)
        if chars > _READ_CHARS:
            break
    return texts


def in_pieces(text: str) -> Iterator[str]:
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

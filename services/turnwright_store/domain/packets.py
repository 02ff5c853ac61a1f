"""Stored packets: the pieces of text that a model was sent in a turn, and the layout that lists them.

A layout is stored as a delta against the previous one: copied ranges of pieces, and new pieces. A long text is a block,
shared by all runs of the project and identified by its id; any other text by the turn of the first packet with it and
its index among the new texts of that packet. Consecutive ids are written as a range. So the size of a layout is
proportional to what changed in the turn.

    system 3-5 +0:40;user 17.0-3 +1:200        blocks 3, 4 and 5, then 40 pieces from place 0 of the base; then the
                                               first four new texts of turn 17, and 200 pieces from place 1

Source: architecture 3 (what the model was sent); C22.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from turnwright_core.checks import check_bytes, check_count, invalid
from turnwright_core.delta_encoding import Copied, DeltaEncoder
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import BODY_BYTES_MAX
from turnwright_core.packet_values import TurnPacket
from turnwright_store.domain.write_rules import check_path

MESSAGES_MAX: Final = 16
"""Most messages of a packet."""

PIECES_MAX: Final = 100_000
"""Most pieces of a packet."""

BLOCK_CHARS_MIN: Final = 1024
"""Length from which a text that shows no entry is a block."""

NOTE_BYTES_MAX: Final = 512 * 1024
"""Longest note with a packet, in bytes of UTF-8."""

CHAIN_MAX: Final = 32
"""The longest delta chain of layouts; then one is stored whole."""

_DIGEST_DIGITS: Final = 40
"""Truncated, because each block stores its digest twice; long enough to be collision-resistant."""

_TURN: Final = 2**17
"""More than there are pieces in a packet."""

Layout = tuple[tuple[str, tuple[int, ...]], ...]
"""Roles, each with its pieces: ids of blocks, and numbers below 0 for texts of a turn (see piece_id)."""


def piece_id(turn: int, index: int) -> int:
    """The id of a text by the turn of the first packet with it and its index among the new texts of that packet."""
    return index - turn * _TURN


def piece_turn_and_index(piece: int) -> tuple[int, int]:
    """Inverse of `piece_id`."""
    return -(piece // _TURN), piece % _TURN


def check_packet(packet: TurnPacket) -> None:
    """Refuse a packet that is over its limits, or copies from nowhere."""
    if packet.again and (packet.messages or packet.base_turn or packet.note):
        raise invalid("packet.again", "again sends the stored packet: leave out messages, base_turn and note.")
    check_count("packet.messages", len(packet.messages), MESSAGES_MAX)
    check_bytes("packet.note", packet.note, NOTE_BYTES_MAX)
    check_count("packet.pieces", packet.length, PIECES_MAX)
    for path in packet.shows.values():
        check_path(path, field="packet.shows")
    if packet.base_turn and packet.base_turn >= packet.turn:
        raise invalid("packet.base_turn", f"base_turn must be before {packet.turn}; it is {packet.base_turn}.")
    for text in packet.texts:
        check_bytes("packet.text", text, BODY_BYTES_MAX)
    if (packet.copies and not packet.base_turn) or 0 in [copied.count for copied in packet.copies]:
        raise invalid("packet.copied", "copied needs the base_turn that it copies from, and a count of at least 1.")


def check_copies(packet: TurnPacket, base_length: int) -> None:
    for copied in packet.copies:
        if copied.first + copied.count > base_length:
            wanted = f"{copied.count} pieces from {copied.first}"
            raise invalid("packet.copied", f"copied asks for {wanted}; the base has {base_length}.")


def base_missing_error(run: str, turn: int) -> Exception:
    """The error for a copy from a packet that is not stored."""
    message = f"The packet of turn {turn} is not the run's latest before this one; send this packet whole."
    return fault(Reason.PACKET_BASE_MISSING, message, run=run, turn=turn)


def digest_of(text: str) -> str:
    """The key of a text in a project: 160 bits of its SHA-256, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]


def layout_ids(layout: Layout) -> list[int]:
    return list(chain.from_iterable(ids for _, ids in layout))


MessageParts = tuple[str, Iterable[Copied | int]]
"""A message by what differs from another layout: its role, runs of places there, and ids."""


def encode_layout(layout: Layout, base: Sequence[int]) -> str:
    """Encode a layout as a delta against the ids of another one; with an empty base it is self-contained."""
    differences = DeltaEncoder(base, complete=True)
    return layout_text((role, differences.encode(ids)) for role, ids in layout)


def layout_text(layout: Iterable[MessageParts]) -> str:
    return ";".join(" ".join([role, *_operations(parts)]) for role, parts in layout)


def decode_layout(text: str, base: Sequence[int]) -> Layout:
    """Inverse of `encode_layout`, with the same base."""
    layout = []
    for message in text.split(";") if text else []:
        role, *operations = message.split(" ")
        ids: list[int] = []
        for operation in operations:
            ids += _ids_of_operation(operation, base)
        layout.append((role, tuple(ids)))
    return tuple(layout)


def own_blocks(text: str) -> set[int]:
    """The blocks in a layout's text, without those that it copies from its base."""
    return {
        block
        for message in text.split(";")
        for operation in message.split(" ")[1:]
        if not operation.startswith("+") and "." not in operation
        for block in _ids_of_operation(operation, ())
    }


def _ids_of_operation(operation: str, base: Sequence[int]) -> Sequence[int]:
    if operation.startswith("+"):
        place, count = map(int, operation[1:].split(":"))
        return base[place : place + count]
    turn, dot, places = operation.rpartition(".")
    low, _, high = places.partition("-")
    first = piece_id(int(turn), int(low)) if dot else int(low)
    return range(first, first + int(high or low) - int(low) + 1)


def _operations(parts: Iterable[Copied | int]) -> Iterator[str]:
    low = high = 0
    for part in parts:
        if high and part == high + 1:
            high += 1
            continue
        if high:
            yield _range_text(low, high)
        low = high = 0
        if isinstance(part, int):
            low = high = part
        else:
            yield f"+{part.first}:{part.count}"
    if high:
        yield _range_text(low, high)


def _range_text(low: int, high: int) -> str:
    if low > 0:
        return f"{low}-{high}" if high > low else str(low)
    turn, place = piece_turn_and_index(low)
    return f"{turn}.{place}-{place + high - low}" if high > low else f"{turn}.{place}"

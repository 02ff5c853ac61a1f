"""What the model is sent in a turn, as blocks, and the layout that says which blocks in which order.

A layout is written as a difference to the one before: where a run of blocks stands there too, in the same order, the
difference names the run; what is new it names by id. Ids that follow one another are written as a range, since new
blocks get theirs in the order in which they are sent. So a turn's layout is as long as what changed in the turn.

    system 3-5 +0:40;user 17 +1:200        ids 3, 4, 5, then 40 blocks from place 0 of the base; ...

Source: architecture 3 (what the model was sent); C22.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from turnwright_core.errors import Reason, fault
from turnwright_core.limits import BODY_BYTES_MAX
from turnwright_store.domain.checks import check_bytes, check_count, invalid

MESSAGES_MAX: Final = 16
"""Most messages of a packet."""

BLOCKS_MAX: Final = 100_000
"""Most blocks of a packet."""

NOTE_BYTES_MAX: Final = 4096
"""Longest note with a packet, in bytes of UTF-8."""

DIGEST_CHARS: Final = 64
"""A SHA-256 in hexadecimal."""

CHAIN_MAX: Final = 32
"""Layouts that reading a packet walks at most: one that stands for itself is kept as often."""

ROLES: Final = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a packet: its digest, and its text where the sender gives it."""

    digest: str
    text: str | None


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a packet."""

    role: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Packet:
    """What the model is sent in a turn."""

    turn: int
    messages: tuple[Message, ...]
    note: str = ""
    """What its owner wants to know of it later; opaque."""

    @property
    def blocks(self) -> Iterable[Block]:
        """All blocks, in order."""
        return chain.from_iterable(message.blocks for message in self.messages)


Layout = tuple[tuple[str, tuple[int, ...]], ...]
"""Roles, each with the ids of its blocks."""


def check_packet(packet: Packet) -> None:
    """Refuse a packet that is over its limits, or whose texts do not have the digests that are said."""
    check_count("packet.messages", len(packet.messages), MESSAGES_MAX)
    check_bytes("packet.note", packet.note, NOTE_BYTES_MAX)
    check_count("packet.blocks", sum(len(message.blocks) for message in packet.messages), BLOCKS_MAX)
    for message in packet.messages:
        if message.role not in ROLES:
            raise invalid("packet.role", f"role must be one of {', '.join(ROLES)}; it is {message.role!r}.")
    for block in packet.blocks:
        if len(block.digest) != DIGEST_CHARS:
            raise invalid("packet.digest", "digest must be a SHA-256: 32 bytes.")
        if block.text is not None:
            check_bytes("packet.text", block.text, BODY_BYTES_MAX)
            if hashlib.sha256(block.text.encode()).hexdigest() != block.digest:
                raise invalid("packet.digest", f"{block.digest} is not the SHA-256 of the text that came with it.")


def missing(count: int) -> Exception:
    """What a caller is told who leaves out texts that the store does not have."""
    message = f"{count} blocks of the packet are not stored yet: send it again with their texts."
    return fault(Reason.BLOCKS_MISSING, message, missing=count)


def flat(layout: Layout) -> list[int]:
    """The ids of a layout, one after the other."""
    return list(chain.from_iterable(ids for _, ids in layout))


def difference(layout: Layout, base: Sequence[int]) -> str:
    """A layout as text, by what differs from the ids of another one; an empty base makes it stand for itself."""
    first: dict[int, int] = {}
    for place, block in enumerate(base):
        first.setdefault(block, place)
    finder = _Finder(base, first)
    return ";".join(" ".join([role, *_operations(ids, finder)]) for role, ids in layout)


def restored(text: str, base: Sequence[int]) -> Layout:
    """The layout that `difference` wrote, with the same base."""
    layout = []
    for message in text.split(";") if text else []:
        role, *operations = message.split(" ")
        ids: list[int] = []
        for operation in operations:
            ids += _meant(operation, base)
        layout.append((role, tuple(ids)))
    return tuple(layout)


def named_in(text: str) -> set[int]:
    """The ids that a layout's text names itself: with those of its bases, all that it consists of."""
    return {
        block
        for message in text.split(";")
        for operation in message.split(" ")[1:]
        if not operation.startswith("+")
        for block in _meant(operation, ())
    }


def _meant(operation: str, base: Sequence[int]) -> Sequence[int]:
    if operation.startswith("+"):
        place, count = map(int, operation[1:].split(":"))
        return base[place : place + count]
    low, _, high = operation.partition("-")
    return range(int(low), int(high or low) + 1)


class _Finder:
    """Where a block stands in the base: at best right where the last run went on."""

    def __init__(self, base: Sequence[int], first: dict[int, int]) -> None:
        self._base = base
        self._first = first
        self._next = 0
        self._skipped = 0

    def place(self, block: int) -> int | None:
        """The place of a block; None for a new one. Blocks are asked for in the order of the layout."""
        for place in (self._next, self._next + self._skipped):
            # Something was put in before it, or as much was replaced.
            if place < len(self._base) and self._base[place] == block:
                return self._found(place)
        known = self._first.get(block)
        if known is None:
            self._skipped += 1
            return None
        return self._found(known)

    def _found(self, place: int) -> int:
        self._next, self._skipped = place + 1, 0
        return place


def _operations(ids: Iterable[int], finder: _Finder) -> Iterable[str]:
    """Runs as (copied, first, last): of places in the base, or of ids."""
    runs: list[tuple[bool, int, int]] = []
    for block in ids:
        place = finder.place(block)
        copied, at = place is not None, block if place is None else place
        if runs and runs[-1][0] is copied and runs[-1][2] + 1 == at:
            runs[-1] = (copied, runs[-1][1], at)
        else:
            runs.append((copied, at, at))
    for copied, low, high in runs:
        if copied:
            yield f"+{low}:{high - low + 1}"
        else:
            yield f"{low}-{high}" if high > low else str(low)

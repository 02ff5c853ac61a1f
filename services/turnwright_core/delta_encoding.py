"""Delta encoding of a sequence against a base: runs of items copied from the base, and new items.

Source: architecture 3 (what the model was sent).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress, count
from operator import ne
from typing import Final, Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")

_SLICE: Final = 256
"""Items that are compared at a time."""


class Copied(Struct, frozen=True):
    """A run of items of the base: index of the first one, and their number."""

    first: int
    count: int


class DeltaEncoder(Generic[T]):
    """Encodes sequences against one base, in order: the search goes on where the last run ended."""

    def __init__(self, base: Sequence[T]) -> None:
        """Encode against this base; with an empty one every item is new."""
        self._base = tuple(base)
        self._first: dict[T, int] | None = None
        """Index of each item; built only when an item is not where the last run ended."""
        self._next = 0
        self._skipped = 0

    def encode(self, sequence: Iterable[T]) -> list[Copied | T]:
        """The encoded sequence: runs of the base as long as possible, and new items."""
        items, at = tuple(sequence), 0
        encoded: list[Copied | T] = []
        while at < len(items):
            place = self._place(items[at]) if self._base else None
            if place is None:
                encoded.append(items[at])
                at += 1
                continue
            length = common_run_length(items, self._base, at, place)
            encoded.append(Copied(place, length))
            self._next, self._skipped = place + length, 0
            at += length
        return encoded

    def _place(self, item: T) -> int | None:
        """Index of an item in the base, preferably right after the last run; None for a new item."""
        for place in (self._next, self._next + self._skipped):
            # Something was inserted before it, or replaced by as much.
            if place < len(self._base) and self._base[place] == item:
                return place
        if self._first is None:
            base = self._base
            self._first = dict(zip(reversed(base), range(len(base) - 1, -1, -1), strict=True))
        known = self._first.get(item)
        if known is None:
            self._skipped += 1
        return known


def common_run_length(items: Sequence[T], base: Sequence[T], at: int = 0, place: int = 0) -> int:
    """Length of the common run from these indices on; compares slices first, because most runs are long."""
    length = 0
    while (part := items[at : at + _SLICE]) == (other := base[place : place + _SLICE]) and part:
        length, at, place = length + len(part), at + _SLICE, place + _SLICE
    return length + next(compress(count(), map(ne, part, other)), min(len(part), len(other)))


def decode(parts: Iterable[Copied | T], base: Sequence[T]) -> list[T]:
    """Decode a sequence. Raises IndexError for indices outside the base."""
    decoded: list[T] = []
    for part in parts:
        if not isinstance(part, Copied):
            decoded.append(part)
        elif part.first + part.count > len(base):
            raise IndexError(part.first + part.count)
        else:
            decoded += base[part.first : part.first + part.count]
    return decoded

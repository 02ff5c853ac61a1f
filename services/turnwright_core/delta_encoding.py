"""Delta encoding of a sequence against a base: runs of items copied from the base, and new items.

Source: architecture 3 (what the model was sent).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")

_NEAR: Final = 16
"""Items after the last run among which the next one is looked for first, and at an end those that are sent again."""


class Copied(Struct, frozen=True):
    """A run of items of the base: index of the first one, and their number."""

    first: int
    count: int


class DeltaEncoder(Generic[T]):
    """Encodes sequences against one base, in order: the search goes on where the last run ended."""

    def __init__(self, base: Sequence[T], *, complete: bool = False) -> None:
        """Encode against this base; with an empty one every item is new.

        A `complete` encoding copies each item that the base has. Others give that up where the search is not worth it.
        """
        self._complete = complete
        self._base = tuple(base)
        self._first: dict[T, int] | None = None
        """Index of each item; built only when an item is far from where the last run ended."""
        self._next = 0

    def encode(self, sequence: Iterable[T]) -> list[Copied | T]:
        """The encoded sequence: long runs of the base, and new items."""
        items, at = tuple(sequence), 0
        encoded: list[Copied | T] = []
        while at < len(items):
            place = self._place(items, at) if self._base else None
            if place is None:
                encoded.append(items[at])
                at += 1
                continue
            length = common_run_length(items, self._base, at, place)
            encoded.append(Copied(place, length))
            self._next = place + length
            at += length
        return encoded

    def _place(self, items: Sequence[T], at: int) -> int | None:
        """Index of an item in the base, preferably soon after the last run; None for a new item."""
        item, near = items[at], self._base[self._next : self._next + _NEAR]
        if item in near:
            return self._next + near.index(item)
        ahead = items[at + 1 : at + 1 + _NEAR]
        if not self._complete and (len(ahead) < _NEAR or (near and near[0] in ahead)):
            # Inserted before what comes next in the base, or too near the end to be worth a search.
            return None
        if self._first is None:
            base = self._base
            self._first = dict(zip(reversed(base), range(len(base) - 1, -1, -1), strict=True))
        return self._first.get(item)


def common_run_length(items: Sequence[T], base: Sequence[T], at: int = 0, place: int = 0) -> int:
    """Length of the common run from these indices on; compares slices, of twice the length until they differ."""
    length, step, has_ended = 0, _NEAR, False
    while step:
        part = items[at + length : at + length + step]
        if len(part) == step and part == base[place + length : place + length + step]:
            length += step
        else:
            has_ended = True
        step = step // 2 if has_ended else step * 2
    return length


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

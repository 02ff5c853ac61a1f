"""Delta encoding of a sequence against a base: runs of items copied from the base, and new items.

Source: architecture 3 (what the model was sent).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


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

    def encode(self, sequence: Iterable[T]) -> Iterator[Copied | T]:
        """The encoded sequence: runs of the base as long as possible, and new items."""
        if not self._base:
            yield from sequence
            return
        items, at = tuple(sequence), 0
        while at < len(items):
            place = self._place(items[at])
            if place is None:
                yield items[at]
                at += 1
                continue
            count = common_run_length(items, self._base, at, place)
            yield Copied(place, count)
            self._next, self._skipped = place + count, 0
            at += count

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
    """Length of the common run from these indices on; compares slices, because most runs are long."""
    most = min(len(items) - at, len(base) - place)

    def goes_on(count: int, more: int) -> bool:
        end = min(count + more, most)
        return items[at + count : at + end] == base[place + count : place + end]

    count, more = 0, 1
    while count < most and goes_on(count, more):
        count, more = count + more, 2 * more
    while more:
        count, more = count + more * goes_on(count, more), more // 2
    return min(count, most)


def decode(parts: Iterable[Copied | T], base: Sequence[T]) -> Iterator[T]:
    """Decode a sequence. Raises IndexError for indices outside the base."""
    for part in parts:
        if isinstance(part, Copied):
            if part.first + part.count > len(base):
                raise IndexError(part.first + part.count)
            yield from base[part.first : part.first + part.count]
        else:
            yield part

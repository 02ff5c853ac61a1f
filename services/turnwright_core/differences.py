"""A sequence told by what differs from another one: runs of items that stand there too, and the items that are new.

Source: architecture 3 (what the model was sent).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Copied(Struct, frozen=True):
    """Items of the base: the place of the first one, and how many."""

    first: int
    count: int


class Differences(Generic[T]):
    """Tells sequences by what differs from one base. Sequences are told in their order: the places found go on."""

    def __init__(self, base: Sequence[T]) -> None:
        """Tell by the difference to this base; an empty one makes every item new."""
        self._base = base
        self._first: dict[T, int] = dict(zip(reversed(base), range(len(base) - 1, -1, -1), strict=True))
        self._next = 0
        self._skipped = 0

    def of(self, items: Iterable[T]) -> Iterator[Copied | T]:
        """The parts of a sequence: runs of the base as long as they go, and new items."""
        base, size = self._base, len(self._base)
        first = end = 0
        for item in items:
            if first < end < size and base[end] == item:
                # So it is nearly always: a run goes on.
                end += 1
                continue
            if first < end:
                yield Copied(first, end - first)
                self._next, self._skipped = end, 0
            place = self._place(item)
            if place is None:
                first = end = 0
                yield item
            else:
                first, end = place, place + 1
        if first < end:
            yield Copied(first, end - first)
            self._next, self._skipped = end, 0

    def _place(self, item: T) -> int | None:
        """The place of an item, at best right where the last run went on; None for a new one."""
        for place in (self._next, self._next + self._skipped):
            # Something was put in before it, or as much was replaced.
            if place < len(self._base) and self._base[place] == item:
                return self._found(place)
        known = self._first.get(item)
        if known is None:
            self._skipped += 1
            return None
        return self._found(known)

    def _found(self, place: int) -> int:
        self._next, self._skipped = place + 1, 0
        return place


def whole(parts: Iterable[Copied | T], base: Sequence[T]) -> Iterator[T]:
    """The items of a sequence that was told by what differs. Raises IndexError for places that the base has not."""
    for part in parts:
        if isinstance(part, Copied):
            if part.first + part.count > len(base):
                raise IndexError(part.first + part.count)
            yield from base[part.first : part.first + part.count]
        else:
            yield part

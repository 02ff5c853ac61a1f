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
        self._base = tuple(base)
        self._first: dict[T, int] | None = None
        """The place of each item; made when one is looked for that does not stand where the last run went on."""
        self._next = 0
        self._skipped = 0

    def of(self, sequence: Iterable[T]) -> Iterator[Copied | T]:
        """The parts of a sequence: runs of the base as long as they go, and new items."""
        items, at = tuple(sequence), 0
        while at < len(items):
            place = self._place(items[at])
            if place is None:
                yield items[at]
                at += 1
                continue
            count = _alike(items, at, self._base, place)
            yield Copied(place, count)
            self._next, self._skipped = place + count, 0
            at += count

    def _place(self, item: T) -> int | None:
        """The place of an item, at best right where the last run went on; None for a new one."""
        for place in (self._next, self._next + self._skipped):
            # Something was put in before it, or as much was replaced.
            if place < len(self._base) and self._base[place] == item:
                return place
        if self._first is None:
            base = self._base
            self._first = dict(zip(reversed(base), range(len(base) - 1, -1, -1), strict=True))
        known = self._first.get(item)
        if known is None:
            self._skipped += 1
        return known


def _alike(items: tuple[T, ...], at: int, base: tuple[T, ...], place: int) -> int:
    """How many items are the same from these places on: compared by slices, because nearly always a run is long."""
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


def whole(parts: Iterable[Copied | T], base: Sequence[T]) -> Iterator[T]:
    """The items of a sequence that was told by what differs. Raises IndexError for places that the base has not."""
    for part in parts:
        if isinstance(part, Copied):
            if part.first + part.count > len(base):
                raise IndexError(part.first + part.count)
            yield from base[part.first : part.first + part.count]
        else:
            yield part

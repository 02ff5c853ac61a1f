"""What changed between two states of a plan, for those who follow it.

An item is known by its content: one whose text was changed is told as a new one and one that is gone. The same content
twice is two items, in their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct


class PlanStep(Protocol):
    """What is looked at in an item, a value or a message."""

    @property
    def content(self) -> str:
        """What is to be done."""

    @property
    def status(self) -> int:
        """How far it has come."""

    @property
    def priority(self) -> int:
        """How much it matters."""


ItemT = TypeVar("ItemT", bound=PlanStep)


class ItemMoved(Struct, Generic[ItemT], frozen=True):
    """An item that is new, that has another status or priority, or that is gone."""

    item: ItemT
    """As it is now; one that is gone as it was."""
    is_gone: bool = False


def items_moved(before: Sequence[ItemT], after: Sequence[ItemT]) -> tuple[ItemMoved[ItemT], ...] | None:
    """Which items moved, in the order of the plan, then those that are gone; None where no item is the same."""
    known = dict(_numbered(before))
    now = dict(_numbered(after))
    if (known or now) and not known.keys() & now.keys():
        return None
    moved = [ItemMoved(item) for key, item in now.items() if key not in known or _stands(known[key]) != _stands(item)]
    return (*moved, *(ItemMoved(item, is_gone=True) for key, item in known.items() if key not in now))


def _numbered(items: Iterable[ItemT]) -> Iterator[tuple[tuple[str, int], ItemT]]:
    """Each item with its content, and how many of the same content stand before it."""
    seen: Counter[str] = Counter()
    for item in items:
        yield (item.content, seen[item.content]), item
        seen[item.content] += 1


def _stands(item: PlanStep) -> tuple[int, int]:
    """What is told of an item beside its content."""
    return item.status, item.priority


def lines_changed(before: str, after: str) -> tuple[int, int]:
    """How many lines of a text are new, and how many are gone; a line that only stands elsewhere is neither."""
    was, now = Counter(before.splitlines()), Counter(after.splitlines())
    return (now - was).total(), (was - now).total()

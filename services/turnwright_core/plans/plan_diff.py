"""The differences between two states of a plan.

An item is identified by its content: a changed text is a new item and a removed one. Equal contents are separate items,
in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct


class PlanStep(Protocol):
    """The fields of an item that are compared, in a value or a message."""

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


class ItemChange(Struct, Generic[ItemT], frozen=True):
    """An item that is new, has another status or priority, or was removed."""

    item: ItemT
    """The item as it is now, or as it was if it was removed."""
    is_gone: bool = False


def diff_items(before: Sequence[ItemT], after: Sequence[ItemT]) -> tuple[ItemChange[ItemT], ...] | None:
    """The items that changed, in plan order, then those removed; None if no item stayed the same."""
    known = dict(_numbered(before))
    now = dict(_numbered(after))
    if (known or now) and not known.keys() & now.keys():
        return None
    moved = [
        ItemChange(item) for key, item in now.items() if key not in known or _compared(known[key]) != _compared(item)
    ]
    return (*moved, *(ItemChange(item, is_gone=True) for key, item in known.items() if key not in now))


def _numbered(items: Iterable[ItemT]) -> Iterator[tuple[tuple[str, int], ItemT]]:
    """Each item with its content, and the number of earlier items with the same content."""
    seen: Counter[str] = Counter()
    for item in items:
        yield (item.content, seen[item.content]), item
        seen[item.content] += 1


def _compared(item: PlanStep) -> tuple[int, int]:
    """The fields of an item that are compared besides its content."""
    return item.status, item.priority


def count_changed_lines(before: str, after: str) -> tuple[int, int]:
    """Number of lines added and removed in a text; a line that only moved counts as neither."""
    was, now = Counter(before.splitlines()), Counter(after.splitlines())
    return (now - was).total(), (was - now).total()

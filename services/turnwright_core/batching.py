"""Lists in parts, so that no message becomes too large."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from turnwright_core.limits import CHUNK_BYTES

T = TypeVar("T")


def split_by_weight(items: Iterable[T], weight: Callable[[T], int]) -> Iterator[list[T]]:
    """The items in lists that make messages of about 256 KiB each; a large item has its own."""
    part: list[T] = []
    total = 0
    for item in items:
        more = weight(item)
        if part and total + more > CHUNK_BYTES:
            yield part
            part, total = [], 0
        part.append(item)
        total += more
    if part:
        yield part

"""Lists in parts, so that no message becomes too large."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

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


MOMENTS: Final = 8
"""Possible moments for heartbeats within the longest silence; the more there are, the fewer streams share one."""


def heartbeat_due_s(now_s: float, silence_s_max: float) -> float:
    """The last shared moment within this many seconds from now; both by one clock of the process."""
    step_s = silence_s_max / MOMENTS
    return (now_s + silence_s_max) // step_s * step_s


def next_poll_in_s(now_s: float, every_s: float) -> float:
    """Seconds to the next moment shared by all that poll at this interval, by one clock of the process."""
    return every_s - now_s % every_s if every_s else 0.0

"""Exponential backoff: the pause before a retry doubles with each consecutive failure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from msgspec import Struct

_DOUBLINGS_MAX: Final = 30
"""Beyond this the longest pause applies anyway, and the exponent would overflow a float."""


class Backoff(Struct, frozen=True):
    """Exponential backoff: pauses in seconds, from the first to the longest."""

    first_s: float
    longest_s: float

    def pause_s(self, failures: int) -> float:
        """Pause in seconds after this many consecutive failures, at least one."""
        return min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, _DOUBLINGS_MAX))

    def pauses(self) -> Iterator[float]:
        """The pauses in seconds after the first failure, the second, and so on; start over after a success."""
        return map(self.pause_s, count(1))

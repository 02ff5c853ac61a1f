"""How long to wait before something that failed is tried again: twice as long after each failure in a row."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from msgspec import Struct

_DOUBLINGS_MAX: Final = 30
"""Beyond this the longest pause holds anyway, and the figure stays one that a float can hold."""


class Backoff(Struct, frozen=True):
    """Exponential backoff: pauses in seconds, from the first to the longest."""

    first_s: float
    longest_s: float

    def pause_s(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row, at least one."""
        return min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, _DOUBLINGS_MAX))

    def pauses(self) -> Iterator[float]:
        """The seconds to wait after the first failure, the second, and so on; begin anew after a success."""
        return map(self.pause_s, count(1))

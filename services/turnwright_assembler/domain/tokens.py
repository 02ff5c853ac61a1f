"""The ceiling of a context window. Source: RU212."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import floor


# Each packet asks, and there are few windows.
@lru_cache(maxsize=256)
def ceiling_of(context_length: int, ratio: float) -> int:
    """The tokens that a packet may have in a window of `context_length` tokens."""
    # The decimal that was written, not its binary neighbour: floor(10 x 0.3) of a float may fall short by one.
    return floor(context_length * Fraction(str(ratio)))

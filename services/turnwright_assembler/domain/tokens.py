"""The ceiling of a context window. Source: RU212."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import floor


# Cached: each packet asks, and there are few windows.
@lru_cache(maxsize=256)
def ceiling_of(context_length: int, ratio: float) -> int:
    """Maximum tokens of a packet for a window of `context_length` tokens."""
    # The decimal as written, not its binary approximation: floor(10 x 0.3) of a float may be too small by one.
    return floor(context_length * Fraction(str(ratio)))

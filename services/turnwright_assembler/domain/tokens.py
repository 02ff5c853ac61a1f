"""The one formula for tokens, and the ceiling of a context window. Source: RU212, RU223."""

from __future__ import annotations

from fractions import Fraction
from math import floor


def tokens_of(chars: int, divisor: int) -> int:
    """The tokens that so many code points are estimated at: the quotient, rounded up."""
    return -(-chars // divisor)


def count_tokens(text: str, divisor: int) -> int:
    """The tokens that a text is estimated at."""
    return tokens_of(len(text), divisor)


def ceiling_of(context_length: int, ratio: float) -> int:
    """The tokens that a packet may have in a window of `context_length` tokens."""
    # The decimal that was written, not its binary neighbour: floor(10 x 0.3) of a float may fall short by one.
    return floor(context_length * Fraction(str(ratio)))

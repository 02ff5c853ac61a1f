"""Token accounting of a packet, by the parts that the model can influence.

    floor       all entries if everything were summarized; plans and events stay whole
    premium     the extra tokens of visible entries, which the model controls
    overhead    everything else: the system message, the instructions, the tags of the sections, the budget itself

Usage is measured on the text that is sent, and usage = floor + premium + overhead.
Source: RU206-RU211; decisions C15, C24.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import floor

from turnwright_assembler.domain.blocks import FIXED_SCHEMES, Block


class EntryCounts:
    """Numbers of entries with their tokens, updated with each added or removed block. Mutable."""

    def __init__(self) -> None:
        self.visible: dict[str, list[int]] = {}
        """By scheme, with the tokens that demoting them would free."""
        self.fixed: dict[str, list[int]] = {"plan": [0, 0], "event": [0, 0]}
        """Entries with a single form, which free nothing and count with all their tokens."""
        self.summarized = [0, 0]

    def count(self, block: Block, by: int) -> None:
        counted, tokens = self.summarized, block.s_tokens
        if block.scheme in FIXED_SCHEMES:
            counted = self.fixed[block.scheme]
        elif block.is_visible:
            counted, tokens = self.visible.setdefault(block.scheme or "file", [0, 0]), block.a_tokens
        counted[0] += by
        counted[1] += by * tokens


# Cached: each packet asks, and there are few windows.
@lru_cache(maxsize=256)
def ceiling_of(context_length: int, ratio: float) -> int:
    """Maximum tokens of a packet for a window of `context_length` tokens."""
    # The decimal as written, not its binary approximation: floor(10 x 0.3) of a float may be too small by one.
    return floor(context_length * Fraction(str(ratio)))

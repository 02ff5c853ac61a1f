"""What an interrupted command means for whoever goes on: a property of its tool, kept in each record.

Source: architecture 11.
"""

from __future__ import annotations

from enum import Enum


class EffectClass(Enum):
    """What happens when a command is carried out again because nobody knows how far it came."""

    PURE = "pure"
    """It only writes entries, and these are written with its result: carry it out again."""
    IDEMPOTENT = "idempotent"
    """It can tell that it was carried out, by hashes or by its key: carry it out again."""
    OUTSIDE = "outside"
    """It may happen twice: it is never carried out again without a decision."""

"""Turns that repeat: the same fingerprints, again and again.

Source: rows RU156, RU280, RU301.
"""

from __future__ import annotations

from collections.abc import Sequence


def cycle_period(fingerprints: Sequence[str], min_cycles: int, max_period: int) -> int:
    """The shortest period in which the last turns repeat, 0 when they do not.

    `fingerprints` are those of a loop's turns, oldest first, this turn included. A period counts once the
    last `period * min_cycles` turns are `min_cycles` equal blocks.
    """
    return next((period for period in range(1, max_period + 1) if _repeats(fingerprints, period, min_cycles)), 0)


def _repeats(fingerprints: Sequence[str], period: int, min_cycles: int) -> bool:
    length = period * min_cycles
    if len(fingerprints) < length:
        return False
    tail = list(fingerprints[len(fingerprints) - length :])
    return tail == tail[:period] * min_cycles

"""Cycle detection: turns that repeat the same fingerprints.

Source: rows RU156, RU280, RU301.
"""

from __future__ import annotations

from collections.abc import Sequence


def cycle_period(fingerprints: Sequence[str], cycles_min: int, max_period: int) -> int:
    """The shortest period in which the last turns repeat, 0 if they do not.

    `fingerprints` are those of a loop's turns, oldest first, including this turn. A period counts if the last `period *
    cycles_min` turns are `cycles_min` equal blocks.
    """
    return next((period for period in range(1, max_period + 1) if _repeats(fingerprints, period, cycles_min)), 0)


def _repeats(fingerprints: Sequence[str], period: int, cycles_min: int) -> bool:
    length = period * cycles_min
    if len(fingerprints) < length:
        return False
    tail = list(fingerprints[len(fingerprints) - length :])
    return tail == tail[:period] * cycles_min

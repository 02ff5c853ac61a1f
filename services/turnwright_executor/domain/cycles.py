"""Cycle detection: turns that repeat the same fingerprints.

Source: rows RU156, RU280, RU301.
"""

from __future__ import annotations


def cycle_period(fingerprints: list[str], cycles_min: int, max_period: int) -> int:
    """The shortest period in which the last turns repeat, 0 if they do not.

    `fingerprints` are those of a loop's turns, oldest first, including this turn. A period counts if the last `period *
    cycles_min` turns are `cycles_min` equal blocks.
    """
    for period in range(1, max_period + 1):
        tail = fingerprints[-period * cycles_min :]
        if len(tail) == period * cycles_min and tail == tail[:period] * cycles_min:
            return period
    return 0

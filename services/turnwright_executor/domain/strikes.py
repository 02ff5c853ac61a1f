"""Strikes: failed turns, counted as a streak.

Source: rows RU011, RU012, RU152, RU153, RU156.
"""

from __future__ import annotations


def is_strike(*, errors: int, failures: int, is_empty: bool, is_cycle: bool) -> bool:
    """Whether a turn counts against the loop: an error entry, a failed command, an empty reply, a cycle."""
    return errors > 0 or failures > 0 or is_empty or is_cycle


def streak_after(streak: int, *, struck: bool) -> int:
    """The streak after a turn; a turn without a strike resets it."""
    return streak + 1 if struck else 0

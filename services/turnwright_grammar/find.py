"""Repeated forward searches that stay linear over a whole text."""

from __future__ import annotations

import re

BUDGET_FACTOR = 4
BUDGET_BASE_CHARS = 100_000


class Finder:
    """Finds the next occurrence of a pattern at or after a position, remembering the last answer.

    Asked with growing positions, all searches for one pattern together read the text once: an
    occurrence that still lies ahead is answered from memory, and so is "there is no more". The
    reader needs this because hostile text repeats openers that never close.

    What cannot be amortised (attempts that fail after reading far ahead) is paid from a budget of
    characters, four times the text; see `spend`.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.budget_chars = BUDGET_FACTOR * len(text) + BUDGET_BASE_CHARS
        self._last: dict[re.Pattern[str], tuple[int, re.Match[str] | None]] = {}

    def search(self, pattern: re.Pattern[str], start: int) -> re.Match[str] | None:
        """Return the first match of `pattern` that begins at or after `start`."""
        known = self._last.get(pattern)
        if known is not None and known[0] <= start and (known[1] is None or known[1].start() >= start):
            return known[1]
        found = pattern.search(self.text, start)
        self._last[pattern] = (start, found)
        return found

    def spend(self, chars: int) -> bool:
        """Take `chars` from the budget; False when it was spent already."""
        if self.budget_chars <= 0:
            return False
        self.budget_chars -= chars
        return True

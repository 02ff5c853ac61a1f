"""Repeated forward searches that stay linear over a whole text."""

from __future__ import annotations

import re

FAILED_CHARS_MAX = 2_000_000
_IN_STRING = re.compile(r"[\"\\]")
_OUTSIDE = re.compile(r"[\"\[\]{}]")


class Finder:
    """Finds the next occurrence of a pattern at or after a position, remembering the last answer.

    Asked with growing positions, all searches for one pattern together read the text once: an
    occurrence that still lies ahead is answered from memory, and so is "there is no more". The
    reader needs this because hostile text repeats openers that never close.

    What cannot be amortised (attempts that fail after reading far ahead) is paid from a budget of
    characters; see `spend`. `final` says that no more text will come.
    """

    def __init__(self, text: str, *, final: bool = True) -> None:
        self.text = text
        self.final = final
        self.budget_chars = FAILED_CHARS_MAX
        self._last: dict[re.Pattern[str], tuple[int, re.Match[str] | None]] = {}

    def search(self, pattern: re.Pattern[str], start: int) -> re.Match[str] | None:
        """Return the first match of `pattern` that begins at or after `start`."""
        known = self._last.get(pattern)
        if known is not None and known[0] <= start and (known[1] is None or known[1].start() >= start):
            return known[1]
        found = pattern.search(self.text, start)
        self._last[pattern] = (start, found)
        return found

    def replace_text(self, text: str, *, final: bool) -> None:
        """Go on with another text: more of it has come, or what lies behind was dropped."""
        self.text, self.final = text, final
        self._last.clear()

    def spend(self, chars: int) -> bool:
        """Take `chars` from the budget; False when it was spent already."""
        if self.budget_chars <= 0:
            return False
        self.budget_chars -= chars
        return True


class SearchTrigger:
    """What has to come into a text piece by piece before another look at it is worth it.

    `pattern` matches it, at most `LOOKBACK_CHARS` long; `last` is the character that every match ends with.
    """

    LOOKBACK_CHARS = 80

    __slots__ = ("_recent", "last", "pattern")

    def __init__(self, pattern: re.Pattern[str], last: str, before: str = "") -> None:
        self.pattern = pattern
        self.last = last
        self._recent = before[-self.LOOKBACK_CHARS :]

    def after(self, text: str) -> SearchTrigger:
        """Return this sign, to be looked for in what follows `text`."""
        return SearchTrigger(self.pattern, self.last, text)

    def comes(self, piece: str) -> bool:
        old = self._recent
        recent = old + piece
        self._recent = recent if len(recent) < 4 * self.LOOKBACK_CHARS else recent[-self.LOOKBACK_CHARS :]
        if self.last not in piece:
            return False
        found = self.pattern.search(recent, max(0, len(old) - self.LOOKBACK_CHARS))
        while found and found.end() <= len(old):
            found = self.pattern.search(recent, found.end())
        return found is not None


class Balance:
    """Follows the brackets and strings of JSON text piece by piece until the first bracket is closed."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    @property
    def is_in_string(self) -> bool:
        return self._in_string

    def comes(self, piece: str) -> bool:
        """Whether the first bracket is closed somewhere in the next piece. Not to be asked again after that."""
        position, self._escaped = int(self._escaped and bool(piece)), self._escaped and not piece
        while found := (_IN_STRING if self._in_string else _OUTSIDE).search(piece, position):
            char, position = found[0], found.end()
            if char == '"':
                self._in_string = not self._in_string
            elif char == "\\":
                self._escaped = position >= len(piece)
                position += 1
            elif char in "[{":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth <= 0:
                    return True
        return False

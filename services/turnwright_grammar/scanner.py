"""Forward searches that stay linear in the length of the text."""

from __future__ import annotations

import re

FAILED_CHARS_MIN = 16 * 1024
FAILED_CHARS_PER_CHAR = 8
_IN_STRING = re.compile(r"[\"\\]")
_OUTSIDE = re.compile(r"[\"\[\]{}]")


class TextScanner:
    """Searches a text, with a cache of the last match of each pattern.

    With growing positions, all searches for one pattern together read the text once: a match that still lies ahead
    comes from the cache, and so does "no match". Hostile text repeats openers that never close, so every search needs
    this.

    What cannot be amortized (attempts that fail after reading far ahead) is paid from a budget that grows with the
    position of the attempt, so all of them together are linear, however the text was split; see `spend`. `final` says
    that no more text will come.
    """

    def __init__(self, text: str, *, final: bool = True) -> None:
        self.text = text
        self.final = final
        self.spent_chars = 0
        self._dropped_chars = 0
        self._last: dict[re.Pattern[str], tuple[int, re.Match[str] | None]] = {}

    def search(self, pattern: re.Pattern[str], start: int) -> re.Match[str] | None:
        """The first match that begins at or after `start`."""
        known = self._last.get(pattern)
        if known is not None and known[0] <= start and (known[1] is None or known[1].start() >= start):
            return known[1]
        found = pattern.search(self.text, start)
        self._last[pattern] = (start, found)
        return found

    def replace_text(self, text: str, *, final: bool, dropped: int = 0) -> None:
        """Go on with a text that lacks the first `dropped` characters of the one before."""
        self.text, self.final = text, final
        self._dropped_chars += dropped
        self._last.clear()

    def can_spend(self, at: int) -> bool:
        """Whether the budget of an attempt at this offset is not used up."""
        return self.spent_chars < FAILED_CHARS_MIN + FAILED_CHARS_PER_CHAR * (self._dropped_chars + at)

    def spend(self, chars: int) -> None:

        self.spent_chars += chars


class SearchTrigger:
    """A pattern that streamed text must contain before the parser runs again.

    A match is at most `LOOKBACK_CHARS` long; `last` is the character that every match ends with.
    """

    LOOKBACK_CHARS = 80

    __slots__ = ("_recent", "last", "pattern")

    def __init__(self, pattern: re.Pattern[str], last: str, before: str = "") -> None:
        self.pattern = pattern
        self.last = last
        self._recent = before[-self.LOOKBACK_CHARS :]

    def after(self, text: str) -> SearchTrigger:
        """This trigger for what follows `text`."""
        return SearchTrigger(self.pattern, self.last, text)

    def feed(self, piece: str) -> bool:
        old = self._recent
        recent = old + piece
        self._recent = recent if len(recent) < 4 * self.LOOKBACK_CHARS else recent[-self.LOOKBACK_CHARS :]
        if self.last not in piece:
            return False
        found = self.pattern.search(recent, max(0, len(old) - self.LOOKBACK_CHARS))
        while found and found.end() <= len(old):
            found = self.pattern.search(recent, found.end())
        return found is not None


class BracketBalance:
    """Counts the brackets of streamed JSON text until the first one is closed."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    @property
    def is_in_string(self) -> bool:
        return self._in_string

    def feed(self, piece: str) -> bool:
        """Whether the next piece closes the first bracket. Not to be called again after that."""
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

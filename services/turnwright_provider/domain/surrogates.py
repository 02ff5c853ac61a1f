"""Unpaired surrogates: JSON can contain them one by one, UTF-8 cannot.

Servers that split a reply by UTF-16 units send the two halves of one character in two chunks; an unpaired one is not
text. Source: row RU276 (the server never throws on model output).
"""

from __future__ import annotations

import re
from typing import Final

_HALF: Final = re.compile("[\ud800-\udfff]")


def join_surrogates(text: str) -> str:
    """The text with surrogate pairs joined, and unpaired ones as U+FFFD."""
    if text.isascii() or not _HALF.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class SurrogateJoiner:
    """An incremental decoder: takes text as it comes, returns whole characters.

    It only holds back a trailing high surrogate.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        if not text or (text.isascii() and not self._held):
            return text
        text, self._held = self._held + text, ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        return join_surrogates(text)

    def end(self) -> str:
        """The character that was held back."""
        held, self._held = self._held, ""
        return join_surrogates(held)

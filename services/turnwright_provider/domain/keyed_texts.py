"""Texts that arrive in pieces under keys, several open at once, each sent again as a whole when complete.

Deltas that were sent cannot be revoked: a complete text adds what its pieces have not contained, if it begins with
them, and closes its key. Only the length and a checksum of earlier pieces are kept. Source: cases
refact/keyed_reasoning.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final
from zlib import crc32

from msgspec import Struct

KEYS_MAX: Final = 10_000
"""Maximum number of texts in one reply; the rest is ignored."""


class _Received(Struct):
    chars: int = 0
    checksum: int = 0
    words: int = 0
    """The checksum without white space."""
    is_whole: bool = False


class KeyedTexts:
    """Returns what is new in each piece; `between` separates the texts of two keys."""

    def __init__(self, between: str = "") -> None:
        self._between = between
        self._received: dict[Hashable, _Received] = {}
        self._last: Hashable = None

    def add(self, key: Hashable, text: str) -> str:
        received = self._received.get(key)
        if received is None:
            if not text or len(self._received) >= KEYS_MAX:
                return ""
            received = self._received[key] = _Received()
        if received.is_whole or not text:
            return ""
        begins = self._between if self._last not in (None, key) else ""
        self._last = key
        received.chars += len(text)
        received.checksum = _checksum(text, received.checksum)
        received.words = words_of(text, received.words)
        return begins + text

    def whole(self, key: Hashable, text: str) -> str:
        chars_received = self.chars_received(key, text)
        new_text = self.add(key, "" if chars_received is None else text[chars_received:])
        if key in self._received:
            self._received[key].is_whole = True
        return new_text

    def chars_received(self, key: Hashable, text: str) -> int | None:
        """How much of a text the pieces of a key are, in code points; None if it does not begin with them."""
        received = self._received.get(key, _Received())
        return received.chars if _checksum(text[: received.chars]) == received.checksum else None

    def says(self, key: Hashable, text: str) -> bool:
        """Whether the pieces of a key are a text, except for white space."""
        return key in self._received and self._received[key].words == words_of(text)

    def is_whole(self, key: Hashable) -> bool:
        return key in self._received and self._received[key].is_whole


def words_of(text: str, before: int = 0) -> int:
    """The checksum of a text without white space, which goes on after one with the checksum `before`."""
    return _checksum("".join(text.split()), before)


def _checksum(text: str, before: int = 0) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"), before)

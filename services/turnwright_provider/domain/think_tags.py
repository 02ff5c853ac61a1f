"""`<think>...</think>` inside content is reasoning, wherever chunks split it.

Servers without a reasoning parser leave the tags in the content. A close without an open is text; what an open
without a close began is reasoning to the end. Source: RD09; cases refact/think_tags.
"""

from __future__ import annotations

from typing import Final

from turnwright_provider.domain.deltas import AppendContent, AppendReasoning

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"


class ThinkRouter:
    """Takes content as it comes; gives content and reasoning. Holds back only what may become a tag."""

    def __init__(self) -> None:
        """Start outside of a tag."""
        self._inside = False
        self._held = ""

    def feed(self, text: str) -> list[AppendContent | AppendReasoning]:
        """The parts that are certain by now."""
        deltas: list[AppendContent | AppendReasoning] = []
        text = self._held + text
        if "<" not in text:
            self._add(deltas, text)
            return deltas
        lowered = text.lower() if text.isascii() else "".join(c.lower() if c.isascii() else c for c in text)
        start = 0
        while (found := lowered.find(tag := self._tag(), start)) >= 0:
            self._add(deltas, text[start:found])
            self._inside = not self._inside
            start = found + len(tag)
        keep = _partial(lowered[start:], tag)
        self._held = text[len(text) - keep :] if keep else ""
        self._add(deltas, text[start : len(text) - keep])
        return deltas

    def end(self) -> list[AppendContent | AppendReasoning]:
        """What was held back."""
        deltas: list[AppendContent | AppendReasoning] = []
        self._add(deltas, self._held)
        self._held = ""
        return deltas

    def _tag(self) -> str:
        return _CLOSE if self._inside else _OPEN

    def _add(self, deltas: list[AppendContent | AppendReasoning], text: str) -> None:
        if text:
            deltas.append(AppendReasoning(text) if self._inside else AppendContent(text))


def _partial(text: str, tag: str) -> int:
    """Length of the longest end of the text that is a beginning of the tag."""
    return next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:n])), 0)

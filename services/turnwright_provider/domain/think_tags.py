"""`<think>...</think>` inside content is reasoning, wherever chunks split it.

Servers without a reasoning parser leave the tags in the content. Only a tag at the beginning of a reply is routed,
unless a setting says otherwise: later the same tag may be a command or part of a file's text.

A close without an open is content here, because what stands before it has been sent; whoever has the whole reply takes
it as reasoning (C59). An unclosed tag is reasoning to the end, except for calls: the model has forgotten to close it.
Source: RD09; cases refact/think_tags.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from turnwright_core.chat.deltas import AppendContent, AppendReasoning
from turnwright_core.text import ascii_lower

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"


class ThinkTags(Enum):
    """Which think tags are reasoning."""

    LEADING = "leading"
    """Those before anything else was said."""
    ANYWHERE = "anywhere"
    CONTENT = "content"
    """None of them."""


class ThinkRouter:
    """Splits streamed content into content and reasoning. Buffers only what may become a tag."""

    def __init__(self, tags: ThinkTags = ThinkTags.ANYWHERE) -> None:
        self._tags = tags
        self._inside = False
        self._is_over = tags is ThinkTags.CONTENT
        self._held = ""
        self._thought: list[str] = []

    @property
    def unclosed(self) -> str:
        """The reasoning in a tag that is still open; empty if none is."""
        return "".join(self._thought) if self._inside else ""

    def feed(self, text: str) -> list[AppendContent | AppendReasoning]:
        deltas: list[AppendContent | AppendReasoning] = []
        text, self._held = self._held + text, ""
        lowered = ascii_lower(text)
        start = 0
        while not self._is_over:
            tag = _CLOSE if self._inside else _OPEN
            found = lowered.find(tag, start)
            if self._begins(text, start, found):
                break
            if found < 0:
                keep = _partial(lowered[start:], tag)
                self._held = text[len(text) - keep :]
                self._add(deltas, text[start : len(text) - keep])
                return deltas
            self._add(deltas, text[start:found])
            self._inside = not self._inside
            self._thought.clear()
            start = found + len(tag)
        self._add(deltas, text[start:])
        return deltas

    def _begins(self, text: str, start: int, found: int) -> bool:
        """Whether the reply itself begins before the next tag, so that further tags are not routed."""
        if self._tags is not ThinkTags.LEADING or self._inside:
            return False
        leading = text[start:found] if found >= 0 else text[start:]
        bare = ascii_lower(leading.lstrip())
        # Without a whole tag, what is there may still become one.
        self._is_over = bool(bare) and (found >= 0 or not _OPEN.startswith(bare))
        return self._is_over

    def end(self) -> list[AppendContent | AppendReasoning]:
        deltas: list[AppendContent | AppendReasoning] = []
        self._add(deltas, self._held)
        self._held = ""
        return deltas

    def _add(self, deltas: list[AppendContent | AppendReasoning], text: str) -> None:
        if text and self._inside:
            self._thought.append(text)
        if text:
            deltas.append(AppendReasoning(text) if self._inside else AppendContent(text))


def _partial(text: str, tag: str) -> int:
    """Length of the longest suffix of the text that is a prefix of the tag."""
    return next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:n])), 0)


def calls_in_reasoning(thought: str) -> str:
    """The part of unclosed reasoning from its first call on, or behind a close of another dialect; empty if neither."""
    if not thought:
        return ""
    # Few replies need it, and it takes long to load.
    from turnwright_grammar.reader.parser import read_reply  # noqa: PLC0415

    text = f"{_OPEN}{thought}"
    reply = read_reply(text)
    if reply.thought_ends:
        return reply.split_thought(text)[1]
    called = [command for command in reply.commands if command.name != "think"]
    return text[called[0].span[0] :] if called else ""

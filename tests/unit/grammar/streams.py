"""Replies that arrive in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from turnwright_grammar.reader.parser import read_reply
from turnwright_grammar.reader.streaming import FENCES, ReplyReader
from turnwright_grammar.reply import COMMANDS_MAX, Reply
from turnwright_grammar.tools import DEFAULT_TOOLS

NOT_TAKEN_BACK = (*FENCES, "functools[")
"""What is shown as text, and may turn out to have begun a call."""


def stream(
    deltas: Iterable[str], *, known_tools: frozenset[str] = DEFAULT_TOOLS, commands_max: int = COMMANDS_MAX
) -> Reply:
    """Return the reply in the end; nothing is certain before, because the close of a thought may come."""
    reader = ReplyReader(known_tools=known_tools, commands_max=commands_max)
    for delta in deltas:
        reader.feed(delta)
    return reader.finish()


def in_pieces(text: str, chars: int) -> Iterator[str]:
    """Yield `text` in deltas of so many characters."""
    return (text[start : start + chars] for start in range(0, len(text), chars))


def cut_at(text: str, cuts: Iterable[int]) -> list[str]:
    """Return `text` cut at offsets; equal ones give empty deltas."""
    places = [0, *sorted(cuts), len(text)]
    return [text[start:end] for start, end in pairwise(places)]


def check_stream(text: str, deltas: Iterable[str], whole: Reply | None = None) -> None:
    """A stream ends as the whole text does."""
    assert stream(deltas) == (whole or read_reply(text))


def check_narrated(text: str, deltas: Iterable[str], whole: Reply) -> None:
    """The text outside of commands that is shown while the deltas come is that of the whole text."""
    if whole.thought_ends or any(mark in text for mark in NOT_TAKEN_BACK):
        return
    reader, shown = ReplyReader(), ""
    for delta in deltas:
        reader.feed(delta)
        shown += reader.narrated()
    reader.finish()
    assert (shown + reader.narrated()).strip() == whole.narration

"""A text as lines: line offsets, regions, and line endings."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

from msgspec import Struct


class TextRegion(Struct, frozen=True):
    """A region of the text: offsets, and its lines (1-based, inclusive)."""

    start: int
    end: int
    first_line: int
    last_line: int


class Lines:
    r"""A text split into lines once, with the offset of each.

    `bare` are the lines without their endings. Only `\

    ` and `\\r\

    ` end a line: a form feed or U+2028 is part of one.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        raw = text.split("\n")
        if raw[-1] == "":
            raw.pop()
        self.bare = [line.rstrip("\r") for line in raw]
        self.starts = list(accumulate((len(line) + 1 for line in raw), initial=0))

    def place(self, start: int, end: int) -> TextRegion:
        return TextRegion(start, end, self.number_at(start), self.number_at(max(start, end - 1)))

    def number_at(self, offset: int) -> int:
        return max(1, min(bisect_right(self.starts, offset), len(self.bare)))

    def region(self, first: int, last: int) -> TextRegion:
        """Return lines `first` to `last` (indexes from 0, inclusive) without the last line's end."""
        return TextRegion(self.starts[first], self.starts[last] + len(self.bare[last]), first + 1, last + 1)


def lines_in(block: str) -> list[str]:
    r"""Return the lines that a searched text or its replacement stands for.

    The lines are joined by `\n`, so one at the end stands before a blank line: `a\n` is `a` and a blank line. In a
    block of blank lines alone each has its `\n`: the empty text has no line, and `\n` is one.
    """
    if not block:
        return []
    if not block.strip() and block.endswith("\n"):
        block = block.removesuffix("\n").removesuffix("\r")
    return block.split("\n")


def block_of(lines: Iterable[str]) -> str:
    block = "\n".join(lines := tuple(lines))
    return block + "\n" if lines and not block.strip() else block


def with_line_ends_of(text: str, content: str) -> str:
    r"""Return `content` with the line ends of `text`: `\r\n` when at least half of its lines end so, else as it is."""
    crlf = text.count("\r\n")
    if not crlf or crlf * 2 < text.count("\n"):
        return content
    return content.replace("\r\n", "\n").replace("\n", "\r\n")

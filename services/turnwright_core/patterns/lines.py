"""A text as lines: where each begins, which region a pair of offsets spans, and how lines end."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from turnwright_core.values import frozen


@frozen
class Place:
    """A region of the text: offsets, and the lines it spans (from 1, inclusive)."""

    start: int
    end: int
    first_line: int
    last_line: int


class Lines:
    r"""A text cut into lines once, with the offset at which each begins.

    `bare` are the lines without their ends. Only `\n` and `\r\n` end a line: a form feed or U+2028 is part of one.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        raw = text.split("\n")
        if raw[-1] == "":
            raw.pop()
        self.bare = [line.rstrip("\r") for line in raw]
        self.starts = list(accumulate((len(line) + 1 for line in raw), initial=0))

    def place(self, start: int, end: int) -> Place:
        """Return the region from offset `start` to `end` as a Place."""
        return Place(start, end, self.number_at(start), self.number_at(max(start, end - 1)))

    def number_at(self, offset: int) -> int:
        """Return the number (from 1) of the line that holds `offset`."""
        return max(1, min(bisect_right(self.starts, offset), len(self.bare)))

    def region(self, first: int, last: int) -> Place:
        """Return lines `first` to `last` (indexes from 0, inclusive) without the last line's end."""
        return Place(self.starts[first], self.starts[last] + len(self.bare[last]), first + 1, last + 1)


def with_line_ends_of(text: str, content: str) -> str:
    r"""Return `content` with the line ends of `text`: `\r\n` when at least half of its lines end so, else as it is."""
    crlf = text.count("\r\n")
    if not crlf or crlf * 2 < text.count("\n"):
        return content
    return content.replace("\r\n", "\n").replace("\n", "\r\n")

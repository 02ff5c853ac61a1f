"""Finding a searched region in a text when the model's copy of it is not exact.

The ways to match, from the strictest to the loosest; the first that finds anything decides, and it
must find exactly one place:

| way | what may differ |
|---|---|
| lines | nothing; the region is whole lines |
| exact | nothing |
| trailing | blanks at line ends |
| indented | indentation |
| spaced | indentation and the width of blanks inside lines |
| blanks | also blank lines |
| letters | every blank, line breaks too, and typographic quotes and dashes |
| unnumbered | as `indented`, after line numbers (`12 | code`) are taken off |

Case, spelling and missing lines never differ: that would be another text.

Source: RU272, C37.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

Way = Literal["lines", "exact", "trailing", "indented", "spaced", "blanks", "letters", "unnumbered"]

PLACES_SHOWN_MAX = 20
_LETTERS_MIN = 3
_NUMBERED = re.compile(r"^[ \t]*\d+[ \t]*[|:│→][ \t]?", re.MULTILINE)
_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")
# Curly quotes, and the dashes from HYPHEN to EM DASH and MINUS, as a keyboard has them.
_TYPOGRAPHIC = str.maketrans("\u2018\u2019\u201c\u201d\u2010\u2011\u2012\u2013\u2014\u2212", "''\"\"------")


@dataclass(frozen=True, slots=True)
class Place:
    """A region of the text: offsets, and the lines it spans (from 1, inclusive)."""

    start: int
    end: int
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class Found:
    """Every place that the deciding way found, at most 20 of them; `places` is empty when none did."""

    way: Way | None
    places: tuple[Place, ...] = ()


class Lines:
    """A text cut into lines once, with the offset at which each begins."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.raw = _LINE.findall(text)
        self.bare = [line.rstrip("\r\n") for line in self.raw]
        self.starts = [0, *accumulate(len(line) for line in self.raw)]

    def place(self, start: int, end: int) -> Place:
        """Return the region from offset `start` to `end` as a Place."""
        return Place(start, end, self.number_at(start), self.number_at(max(start, end - 1)))

    def number_at(self, offset: int) -> int:
        """Return the number (from 1) of the line that holds `offset`."""
        return max(1, min(bisect_right(self.starts, offset), len(self.raw)))

    def region(self, first: int, last: int) -> Place:
        """Return lines `first` to `last` (indexes from 0, inclusive) without the last line's end."""
        return Place(self.starts[first], self.starts[last] + len(self.bare[last]), first + 1, last + 1)


def find_region(text: str, search: str) -> Found:
    """Return where `search` stands in `text`. `search` must hold a character that is not blank.

    Never raises; linear in both.
    """
    lines = Lines(text)
    wanted = _without_blank_ends(search)
    ways: tuple[tuple[Way, Callable[[], list[Place]]], ...] = (
        ("lines", lambda: _whole_lines(lines, search)),
        ("exact", lambda: _exact(lines, search)),
        ("trailing", lambda: _by_line(lines, wanted, str.rstrip)),
        ("indented", lambda: _by_line(lines, wanted, str.strip)),
        ("spaced", lambda: _by_line(lines, wanted, _spaced)),
        ("blanks", lambda: _by_line(lines, wanted, _spaced, skip_blank=True)),
        ("letters", lambda: _by_letters(lines, search)),
        ("unnumbered", lambda: _by_line(lines, _without_blank_ends(without_numbers(search) or ""), _spaced)),
    )
    for way, find in ways:
        places = find()
        if places:
            return Found(way, tuple(places))
    return Found(None)


def without_numbers(search: str) -> str | None:
    """Return `search` without line numbers, or None when not every line has one."""
    lines = [line for line in search.split("\n") if line.strip()]
    if not lines or not all(_NUMBERED.match(line) for line in lines):
        return None
    return _NUMBERED.sub("", search)


def _without_blank_ends(search: str) -> list[str]:
    lines = [line.rstrip("\r") for line in search.split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    while lines and not lines[0].strip():
        lines.pop(0)
    return lines


def _spaced(line: str) -> str:
    return " ".join(line.split())


def _whole_lines(lines: Lines, search: str) -> list[Place]:
    wanted = search.removesuffix("\n").split("\n")
    return _by_line(lines, [line.rstrip("\r") for line in wanted], str)


def _exact(lines: Lines, search: str) -> list[Place]:
    for needle in dict.fromkeys((search, search.replace("\r\n", "\n"), search.replace("\n", "\r\n"))):
        places: list[Place] = []
        start = lines.text.find(needle)
        while start >= 0 and len(places) < PLACES_SHOWN_MAX:
            places.append(lines.place(start, start + len(needle)))
            start = lines.text.find(needle, start + len(needle))
        if places:
            return places
    return []


def _by_line(lines: Lines, wanted: list[str], normal: Callable[[str], str], *, skip_blank: bool = False) -> list[Place]:
    """Compare line by line after `normal`: the joined lines are searched, so the cost is one `find`."""
    kept = [index for index, line in enumerate(lines.bare) if not skip_blank or line.strip()]
    needle_lines = [normal(line) for line in wanted if not skip_blank or line.strip()]
    if not needle_lines or not any(needle_lines):
        return []
    normals = [normal(lines.bare[index]) for index in kept]
    haystack = "\n" + "\n".join(normals) + "\n"
    needle = "\n" + "\n".join(needle_lines) + "\n"
    starts = list(accumulate((len(line) + 1 for line in normals), initial=0))
    places: list[Place] = []
    at = haystack.find(needle)
    while at >= 0 and len(places) < PLACES_SHOWN_MAX:
        first = bisect_right(starts, at) - 1
        places.append(lines.region(kept[first], kept[first + len(needle_lines) - 1]))
        at = haystack.find(needle, at + len(needle) - 1)
    return places


def _by_letters(lines: Lines, search: str) -> list[Place]:
    needle = "".join(search.translate(_TYPOGRAPHIC).split())
    if len(needle) < _LETTERS_MIN:
        return []
    offsets = [offset for offset, char in enumerate(lines.text) if not char.isspace()]
    haystack = "".join(lines.text.translate(_TYPOGRAPHIC).split())
    places: list[Place] = []
    at = haystack.find(needle)
    while at >= 0 and len(places) < PLACES_SHOWN_MAX:
        places.append(lines.place(offsets[at], offsets[at + len(needle) - 1] + 1))
        at = haystack.find(needle, at + len(needle))
    return places

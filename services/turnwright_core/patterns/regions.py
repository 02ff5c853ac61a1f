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
from array import array
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import Literal

from turnwright_core.patterns.lines import Lines, Place
from turnwright_core.values import frozen

Way = Literal["lines", "exact", "trailing", "indented", "spaced", "blanks", "letters", "unnumbered"]

PLACES_SHOWN_MAX = 20
_LETTERS_MIN = 3
_LETTERS = re.compile(r"\S+")
_NUMBERED = re.compile(r"^[ \t]*\d+[ \t]*[|:│→][ \t]?", re.MULTILINE)
# Curly quotes, and the dashes from HYPHEN to EM DASH and MINUS, as a keyboard has them.
_TYPOGRAPHIC = str.maketrans("\u2018\u2019\u201c\u201d\u2010\u2011\u2012\u2013\u2014\u2212", "''\"\"------")


@frozen
class Found:
    """Every place that the deciding way found, at most 20 of them; `places` is empty when none did."""

    way: Way | None
    places: tuple[Place, ...] = ()


def find_region(text: str, search: str) -> Found:
    """Return where `search` stands in `text`. Never raises; linear in both.

    Blanks alone name a region only where they stand exactly, and nothing at all names none.
    """
    if not search:
        return Found(None)
    lines = Lines(text)
    if not search.strip():
        blanks = _exact(lines, search)
        return Found("exact", tuple(blanks)) if blanks else Found(None)
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
        starts = _occurrences(lines.text, needle)
        if starts:
            return [lines.place(start, start + len(needle)) for start in starts]
    return []


def _by_line(lines: Lines, wanted: list[str], normal: Callable[[str], str], *, skip_blank: bool = False) -> list[Place]:
    """Compare line by line after `normal`: the joined lines are searched, so the cost is one `find`."""
    kept = [index for index, line in enumerate(lines.bare) if not skip_blank or line.strip()]
    needle_lines = [normal(line) for line in wanted if not skip_blank or line.strip()]
    if not needle_lines or not any(needle_lines):
        return []
    normals = [normal(lines.bare[index]) for index in kept]
    starts = list(accumulate((len(line) + 1 for line in normals), initial=0))
    places: list[Place] = []
    for at in _occurrences("\n" + "\n".join(normals) + "\n", "\n" + "\n".join(needle_lines) + "\n"):
        first = bisect_right(starts, at) - 1
        places.append(lines.region(kept[first], kept[first + len(needle_lines) - 1]))
    return places


def _by_letters(lines: Lines, search: str) -> list[Place]:
    needle = "".join(search.translate(_TYPOGRAPHIC).split())
    if len(needle) < _LETTERS_MIN:
        return []
    # Runs of letters instead of an offset for each letter: a text has fewer of them.
    runs = array("Q", (found.start() for found in _LETTERS.finditer(lines.text)))
    words = lines.text.translate(_TYPOGRAPHIC).split()
    counts = array("Q", accumulate((len(word) for word in words), initial=0))

    def offset(letter: int) -> int:
        run = bisect_right(counts, letter) - 1
        return runs[run] + letter - counts[run]

    starts = _occurrences("".join(words), needle)
    return [lines.place(offset(start), offset(start + len(needle) - 1) + 1) for start in starts]


def _occurrences(haystack: str, needle: str) -> list[int]:
    """Where `needle` begins, overlapping ones too: `}}` stands twice in `}}}`, equally well."""
    found: list[int] = []
    at = haystack.find(needle)
    while at >= 0 and len(found) < PLACES_SHOWN_MAX:
        found.append(at)
        at = haystack.find(needle, at + 1)
    return found

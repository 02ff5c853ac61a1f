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
| blanks | also blank lines, at the ends of the search too |
| letters | every blank, line breaks too, typographic quotes and dashes, full-width forms |
| unnumbered | as `indented`, after line numbers (`12 | code`) are taken off |

If none finds anything, all are tried with letters and their accents composed (NFC), in text and search.

Case, spelling and missing lines never differ: that would be another text. A blank line at an end of the search
is a line like any other; the last three ways take as many blank lines there as the text has, up to those searched.

Source: RU272, C37, C57.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal

from msgspec import Struct

from turnwright_core.patterns.indentation import indent_of
from turnwright_core.patterns.lines import Lines, TextRegion, lines_in
from turnwright_core.patterns.typography import PLAIN, composed

Way = Literal["lines", "exact", "trailing", "indented", "spaced", "blanks", "letters", "unnumbered"]

PLACES_SHOWN_MAX = 20
_LETTERS_MIN = 3
_LETTERS = re.compile(r"\S+")
_UNIT = re.compile(r"[\s\S][\u0300-\u036f\u1dc0-\u1dff\u20d0-\u20ff\u3099\u309a\u1161-\u11ff]*")
_NUMBERED = re.compile(r"^[ \t]*(\d+) *([|:│→\t])", re.MULTILINE)
_NUMBERED_BLANK = re.compile(_NUMBERED.pattern + " ?", re.MULTILINE)


class FoundRegions(Struct, frozen=True):
    """Every place that the deciding way found, at most 20 of them; `places` is empty when none did."""

    way: Way | None
    places: tuple[TextRegion, ...] = ()


def find_region(text: str, search: str) -> FoundRegions:
    """Return where `search` stands in `text`; `lines_in` says what its lines are. Never raises; linear in both.

    Blanks alone name a region only where they stand exactly, and nothing at all names none.
    """
    found = _find(text, search)
    if found.places or (text.isascii() and search.isascii()):
        return found
    plain, sought = composed(text), composed(search)
    if (plain, sought) == (text, search):
        return found
    found = _find(plain, sought)
    before, after = Lines(text), Lines(plain)
    return FoundRegions(found.way, tuple(_uncomposed(before, after, place) for place in found.places))


def _uncomposed(text: Lines, plain: Lines, place: TextRegion) -> TextRegion:
    """A place of the composed text in the text as it is; both have the same lines."""
    first, last = place.first_line - 1, plain.number_at(place.end) - 1
    start = _column(text.bare[first], place.start - plain.starts[first])
    end = _column(text.bare[last], place.end - plain.starts[last])
    return TextRegion(text.starts[first] + start, text.starts[last] + end, place.first_line, place.last_line)


def _column(line: str, column: int) -> int:
    """The offset in a line at which its composed form has got to `column`."""
    if line.isascii():
        return column
    units = _UNIT.finditer(line)
    counts = accumulate((len(composed(unit[0])) for unit in units), initial=0)
    ends = [0, *(unit.end() for unit in _UNIT.finditer(line))]
    return next((end for end, count in zip(ends, counts, strict=True) if count >= column), len(line))


def _find(text: str, search: str) -> FoundRegions:
    lines, wanted = Lines(text), bare_lines(search)
    core = _without_blank_ends(wanted)
    ways = _strict_ways(lines, search, wanted) + (_loose_ways(lines, search, wanted, core) if core else ())
    for way, find in ways:
        places = find()
        if places:
            return FoundRegions(way, tuple(places))
    return FoundRegions(None)


_Ways = tuple[tuple[Way, Callable[[], list[TextRegion]]], ...]


def _strict_ways(lines: Lines, search: str, wanted: list[str]) -> _Ways:
    return (
        ("lines", lambda: _by_line(lines, wanted, str)),
        ("exact", lambda: _exact(lines, search, wanted)),
    )


def _loose_ways(lines: Lines, search: str, wanted: list[str], core: list[str]) -> _Ways:
    def anyhow(normal: Callable[[str], str], *, skip_blank: bool = False) -> list[TextRegion]:
        return _with_margins(lines, _by_line(lines, core, normal, skip_blank=skip_blank), wanted)

    def unnumbered() -> list[TextRegion]:
        numberless = bare_lines(strip_line_numbers(search) or "")
        return _with_margins(lines, _by_line(lines, _without_blank_ends(numberless), _spaced), numberless)

    return (
        ("trailing", lambda: _by_line(lines, wanted, str.rstrip)),
        ("indented", lambda: _by_line(lines, wanted, str.strip)),
        ("spaced", lambda: _by_line(lines, wanted, _spaced)),
        ("blanks", lambda: anyhow(str.rstrip) or anyhow(str.strip) or anyhow(_spaced)),
        ("blanks", lambda: anyhow(_spaced, skip_blank=True)),
        ("letters", lambda: _with_margins(lines, _by_letters(lines, search), wanted)),
        ("unnumbered", unnumbered),
    )


def bare_lines(block: str) -> list[str]:
    return [line.rstrip("\r") for line in lines_in(block)]


def count_blank_ends(lines: Sequence[str]) -> tuple[int, int]:
    """Return how many blank lines stand at the beginning, and how many at the end."""
    seen = [index for index, line in enumerate(lines) if line.strip()]
    return (seen[0], len(lines) - 1 - seen[-1]) if seen else (len(lines), 0)


def strip_line_numbers(search: str) -> str | None:
    """Return `search` without line numbers, or None when not every line has one."""
    lines = [line for line in search.split("\n") if line.strip()]
    return _NUMBERED.sub("", search) if lines and all(map(_NUMBERED.match, lines)) else None


def strip_both_line_numbers(search: str, replacement: str, matched: str) -> tuple[str, str]:
    """Return a search whose lines are all numbered, and its replacement, without numbers.

    In the replacement some lines may have none; numbers are taken off if all have one, or a searched line has the same.
    A blank that follows every number belongs to it, unless the first line of `matched` is indented by it, too.
    """
    bare, first = strip_line_numbers(search) or "", next(filter(str.strip, matched.split("\n")), "")
    lines = [line for line in bare.split("\n") if line.strip()]
    takes_blank = all(line[0] == " " for line in lines) and indent_of(lines[0]) != indent_of(first)
    number = _NUMBERED_BLANK if takes_blank else _NUMBERED
    if strip_line_numbers(replacement) is not None or {*_NUMBERED.findall(search)} & {*_NUMBERED.findall(replacement)}:
        replacement = number.sub("", replacement)
    return number.sub("", search), replacement


def _without_blank_ends(wanted: list[str]) -> list[str]:
    before, behind = count_blank_ends(wanted)
    return wanted[before : len(wanted) - behind]


def _with_margins(lines: Lines, places: list[TextRegion], wanted: list[str]) -> list[TextRegion]:
    """Take the blank lines around each place in, as far as the search has such lines."""
    before, behind = count_blank_ends(wanted)
    return [_with_margin(lines, place, before, behind) for place in places] if before or behind else places


def _with_margin(lines: Lines, place: TextRegion, before: int, behind: int) -> TextRegion:
    first, last = place.first_line, place.last_line
    if place.start == lines.starts[first - 1]:
        while first > max(1, place.first_line - before) and not lines.bare[first - 2].strip():
            first -= 1
    if not lines.text[place.end : lines.starts[last]].strip():
        while last < min(len(lines.bare), place.last_line + behind) and not lines.bare[last].strip():
            last += 1
    start = place.start if first == place.first_line else lines.starts[first - 1]
    end = place.end if last == place.last_line else lines.starts[last - 1] + len(lines.bare[last - 1])
    return TextRegion(start, end, first, last)


def _spaced(line: str) -> str:
    return " ".join(line.split())


def _exact(lines: Lines, search: str, wanted: list[str]) -> list[TextRegion]:
    needle = "\n".join(wanted) if search.strip() else search if "\n" not in search else ""
    text, several = lines.text, len(wanted) > 1
    opens, closes = (not several or bool(wanted[index].strip()) for index in (0, -1))

    def fits(start: int, end: int) -> bool:
        # A blank line at an end has to be a whole one.
        is_opened = opens or start == 0 or text[start - 1] == "\n"
        return is_opened and (closes or text.startswith(("\n", "\r\n"), end))

    for written in dict.fromkeys((needle, needle.replace("\n", "\r\n"))) if needle else ():
        starts = _occurrences(text, written, fits)
        if starts:
            return [lines.place(start, start + len(written)) for start in starts]
    return []


def _by_line(
    lines: Lines, wanted: list[str], normal: Callable[[str], str], *, skip_blank: bool = False
) -> list[TextRegion]:
    """Compare line by line after `normal`: the joined lines are searched, so the cost is one `find`."""
    kept = [index for index, line in enumerate(lines.bare) if not skip_blank or line.strip()]
    needle_lines = [normal(line) for line in wanted if not skip_blank or line.strip()]
    if not needle_lines or not kept:
        return []
    normals = [normal(lines.bare[index]) for index in kept]
    starts = list(accumulate((len(line) + 1 for line in normals), initial=0))
    places: list[TextRegion] = []
    for at in _occurrences("\n" + "\n".join(normals) + "\n", "\n" + "\n".join(needle_lines) + "\n"):
        first = bisect_right(starts, at) - 1
        places.append(lines.region(kept[first], kept[first + len(needle_lines) - 1]))
    return places


def _by_letters(lines: Lines, search: str) -> list[TextRegion]:
    needle = "".join(search.translate(PLAIN).split())
    if len(needle) < _LETTERS_MIN:
        return []
    # Runs of letters instead of an offset for each letter: a text has fewer of them.
    runs = array("Q", (found.start() for found in _LETTERS.finditer(lines.text)))
    words = lines.text.translate(PLAIN).split()
    counts = array("Q", accumulate((len(word) for word in words), initial=0))

    def offset(letter: int) -> int:
        run = bisect_right(counts, letter) - 1
        return runs[run] + letter - counts[run]

    starts = _occurrences("".join(words), needle)
    return [lines.place(offset(start), offset(start + len(needle) - 1) + 1) for start in starts]


def _occurrences(haystack: str, needle: str, fits: Callable[[int, int], bool] | None = None) -> list[int]:
    """Where `needle` begins, overlapping ones too: `}}` stands twice in `}}}`, equally well."""
    found: list[int] = []
    at = haystack.find(needle)
    while at >= 0 and len(found) < PLACES_SHOWN_MAX:
        if fits is None or fits(at, at + len(needle)):
            found.append(at)
        at = haystack.find(needle, at + 1)
    return found

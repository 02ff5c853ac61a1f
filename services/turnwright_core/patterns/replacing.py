"""Replacing one region of a text that a model wrote down from memory.

The region is found as `regions` says. What is put in takes the indentation and the line ends of the
text, and lines that the search has, too, stay as the text has them (`alignment`); every byte outside of the reported
place stays as it was.

Source: RU272, RU273, C37, C57.
"""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from turnwright_core.patterns.alignment import align
from turnwright_core.patterns.indentation import reindent
from turnwright_core.patterns.lines import TextRegion, lines_in
from turnwright_core.patterns.regions import Way, bare_lines, count_blank_ends, find_region, strip_both_line_numbers
from turnwright_core.patterns.typography import letters_of

_BLANKS_TO_LINE_END = re.compile(r"[^\S\r\n]+(?=\r?\n|\Z)")
_WHOLE_LINES: frozenset[Way] = frozenset({"trailing", "indented", "spaced", "blanks", "unnumbered"})


class Replacement(Struct, frozen=True):
    """The text after a replacement.

    `place` is what was replaced, in the text as it was: with the line end when whole lines were taken
    away. `way` says how it was found; anything but `lines` and `exact` was lenient.
    """

    text: str
    place: TextRegion
    way: Way


class NoMatch(Struct, frozen=True):
    """No single region fits: `candidates` are the places that fit equally well (at most 20), none when nothing does."""

    candidates: tuple[TextRegion, ...] = ()


def replace_region(text: str, search: str, replacement: str) -> Replacement | NoMatch:
    """Return `text` with the one region that `search` names replaced. Never raises; linear in the texts.

    `lines_in` says what the lines of `search` and `replacement` are; `$&` and backslashes mean themselves. A
    replacement without any line removes the region, and the line end with it when the region is whole lines.
    """
    found = find_region(text, search)
    if found.way is None or len(found.places) > 1:
        return NoMatch(found.places)
    place, way = found.places[0], found.way
    is_whole = way in _WHOLE_LINES
    if way == "letters":
        # Blanks at the end of its last line belong to it, and those before it if it is the same lines.
        rest = _BLANKS_TO_LINE_END.match(text, place.end)
        place = replace(place, end=rest.end()) if rest else place
        lines = replace(place, start=place.start - len(_before(text, place)))
        is_whole = _ends_line(text, place) and _has_lines(text[lines.start : lines.end], search)
        place = lines if is_whole else place
    if way == "unnumbered":
        search, replacement = strip_both_line_numbers(search, replacement, text[place.start : place.end])
    new = _without_missing(lines_in(replacement), bare_lines(search), text[place.start : place.end])
    if not new:
        place = _with_line_end(text, place)
        return Replacement(text[: place.start] + text[place.end :], place, way)
    fitted = _fitted(text, place, search, "\n".join(new), is_whole=is_whole, is_exact=way == "exact").split("\n")
    put = align(text, text[place.start : place.end], bare_lines(search), new, fitted)
    return Replacement(text[: place.start] + put + text[place.end :], place, way)


def _without_missing(new: list[str], searched: list[str], matched: str) -> list[str]:
    """Leave out blank lines that search and replacement have at an end and the text has not."""
    wanted, there, put = (count_blank_ends(lines) for lines in (searched, matched.split("\n"), new))
    before, behind = (min(max(0, sought - found), kept) for sought, found, kept in zip(wanted, there, put, strict=True))
    return new[before : len(new) - behind]


def _has_lines(matched: str, search: str) -> bool:
    """Whether the lines of a text are those of the search, apart from blanks and from what looks alike."""
    there, sought = ([line for line in map(letters_of, part.split("\n")) if line] for part in (matched, search))
    return there == sought


def _fitted(text: str, place: TextRegion, search: str, replacement: str, *, is_whole: bool, is_exact: bool) -> str:
    matched = text[place.start : place.end]
    if is_whole:
        return reindent(search, matched, replacement)
    before = _before(text, place)
    if is_exact and before and not before.strip() and _ends_line(text, place):
        return reindent(search, before + matched, replacement).removeprefix(before)
    return replacement


def _with_line_end(text: str, place: TextRegion) -> TextRegion:
    """A region of whole lines disappears with its line end, and with the indentation before it."""
    before = _before(text, place)
    if before.strip() or not _ends_line(text, place) or place.end == len(text):
        return place
    end = place.end + (2 if text.startswith("\r\n", place.end) else 1)
    return TextRegion(place.start - len(before), end, place.first_line, place.last_line)


def _before(text: str, place: TextRegion) -> str:
    return text[text.rfind("\n", 0, place.start) + 1 : place.start]


def _ends_line(text: str, place: TextRegion) -> bool:
    return text.startswith(("\n", "\r\n"), place.end) or place.end == len(text)

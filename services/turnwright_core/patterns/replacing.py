"""Replacing one region of a text that a model wrote down from memory.

The region is found as `regions` says. What is put in takes the indentation and the line ends of the
text, and lines that the search has, too, stay as the text has them (`alignment`); every byte outside of the reported
place stays as it was.

Source: RU272, RU273, C37, C57.
"""

from __future__ import annotations

import re
from itertools import accumulate, pairwise

from msgspec import Struct
from msgspec.structs import replace

from turnwright_core.patterns.indentation import reindent
from turnwright_core.patterns.line_diff import LineChange, diff_lines
from turnwright_core.patterns.lines import TextRegion, lines_in, with_line_ends_of
from turnwright_core.patterns.regions import Way, bare_lines, count_blank_ends, find_region, strip_both_line_numbers
from turnwright_core.patterns.typography import letters_of

# Keeps the lines of a text where a search and its replacement agree.
#
# A model's copy of a text is rarely exact: quotes are straight, blanks at line ends are gone, a tab is a space. What it
# did not mean to change must stay as the text has it: every line of the search that is in the replacement, too.

_LETTER = re.compile(r"\S")

_Span = tuple[int, int]


def align(text: str, matched: str, searched: list[str], new: list[str], fitted: list[str]) -> str:
    """What takes the place of `matched`, a part of `text`.

    It is `fitted`, but the text's own lines where `new` repeats a searched line. `new` are the lines of the replacement
    as written, `fitted` the same lines as they are to be put in. If searched and matched lines do not correspond, it is
    `fitted` alone. Never raises; about linear.
    """
    line_end = with_line_ends_of(text, "\n")
    spans = _spans(matched, searched)
    if spans is None:
        return line_end.join(line.rstrip("\r") for line in fitted)
    gaps = [matched[end:start] for (_, end), (start, _) in pairwise(spans)]
    ends = [gap if "\n" in gap else line_end for gap in [*gaps, ""]]
    pieces: list[str] = []
    old_at = 0
    bare = [line.rstrip("\r") for line in new]
    changes = diff_lines(searched, bare)
    tail = "" if changes and changes[-1].old_to == len(searched) else matched[spans[-1][1] :]
    for change in [*changes, LineChange(len(searched), len(searched), len(new), len(new))]:
        if old_at < change.old_from:
            pieces += [matched[spans[old_at][0] : spans[change.old_from - 1][1]], ends[change.old_from - 1]]
        for place in range(change.new_from, change.new_to):
            old = change.old_from + place - change.new_from
            pieces += [fitted[place].rstrip("\r"), ends[old] if old < change.old_to else line_end]
        old_at = change.old_to
    return "".join(pieces[:-1]) + tail


def _spans(matched: str, searched: list[str]) -> list[_Span] | None:
    """Where each searched line stands in the matched text; None if that cannot be told."""
    spans = _lines_of(matched)
    if len(spans) == len(searched) and _agree(matched, spans, searched):
        return spans
    filled = [span for span in spans if matched[slice(*span)].strip()]
    wanted = [line for line in searched if line.strip()]
    if len(filled) != len(wanted) or not _agree(matched, filled, wanted):
        filled = _by_letters(matched, wanted)
    return _with_blanks(filled, searched) if filled else None


def _lines_of(matched: str) -> list[_Span]:
    raw = matched.split("\n")
    starts = list(accumulate((len(line) + 1 for line in raw), initial=0))
    return [(start, start + len(line.rstrip("\r"))) for start, line in zip(starts, raw, strict=False)]


def _agree(matched: str, spans: list[_Span], searched: list[str]) -> bool:
    return all(
        letters_of(matched[slice(*span)]) == letters_of(line) for span, line in zip(spans, searched, strict=True)
    )


def _by_letters(matched: str, wanted: list[str]) -> list[_Span]:
    """The lines by their letters: the text breaks its lines elsewhere."""
    places = [found.start() for found in _LETTER.finditer(matched)]
    counts = list(accumulate((len("".join(line.split())) for line in wanted), initial=0))
    if counts[-1] != len(places):
        return []
    return [(places[first], places[last - 1] + 1) for first, last in pairwise(counts)]


def _with_blanks(filled: list[_Span], searched: list[str]) -> list[_Span]:
    """The same with an empty span for each blank line of the search, which the text may lack."""
    spans: list[_Span] = []
    rest = iter(filled)
    end = filled[0][0]
    for line in searched:
        span = next(rest) if line.strip() else (end, end)
        spans.append(span)
        end = span[1]
    return spans


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

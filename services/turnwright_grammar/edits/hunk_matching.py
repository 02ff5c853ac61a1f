"""Fuzzy matching and application of hunks.

The old lines are looked for, in this order:

1. at the line number of the header, if they match exactly
2. at the end of the text, for a hunk that says so
3. at the first match after the lines that the header quotes
4. at the only match in the text (`find_region`: blanks and indentation may differ)
5. of several equally good matches, at the nearest to the header's line number, or at the only one after the previous
   hunk

Blank lines at the ends of a hunk are left out if it does not match with them. Context lines stay as the text has them;
added lines get the indentation and line ends of the text.

Source: RU272, C37, C57.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from turnwright_core.patterns.indentation import reindent
from turnwright_core.patterns.line_diff import LineChange, diff_lines
from turnwright_core.patterns.lines import Lines, TextRegion, block_of, with_line_ends_of
from turnwright_core.patterns.regions import FoundRegions, find_region
from turnwright_core.patterns.replacing import Replacement, replace_region
from turnwright_core.patterns.similar import nearest_region
from turnwright_grammar.edits.hunks import Hunk

# Error messages for the model about an edit that does not match the text.

_PLACES_SHOWN_MAX = 20


class EditMismatch(Struct, frozen=True):
    """`reason` goes on from the operation's name ("... was not found"); `lines` (from 1) are what it names."""

    reason: str
    lines: tuple[int, ...] = ()


def not_found_mismatch(text: str, search: str, replacement: str = "") -> EditMismatch:
    """The error for a `search` that is not in `text`: what is most like it, and whether `replacement` is there already.

    Source: RU268.
    """
    head = "was not found in the current text."
    if not text:
        return EditMismatch(f"{head} The entry is empty or does not exist; use <<NEW ... NEW to write it.")
    there = find_region(text, replacement).places if replacement.strip() else ()
    if there:
        head += f" The new text is there already, on line {there[0].first_line}: the edit may be done."
    nearest = nearest_region(text, search)
    if nearest is None:
        advice = "" if there else " Nothing similar is there; get the entry and copy the text exactly."
        return EditMismatch(head + advice, _first_lines(there))
    shown = "\n".join(f"{nearest.first_line + index}: {line}" for index, line in enumerate(nearest.lines))
    last = nearest.first_line + len(nearest.lines) - 1
    where = f"The most similar lines are {nearest.first_line}-{last}:"
    return EditMismatch(f"{head} {where}\n{shown}\nCopy the text exactly from there.", (nearest.first_line,))


def ambiguous_mismatch(
    places: Iterable[TextRegion], advice: str = "Add neighbouring lines to it until it fits one."
) -> EditMismatch:
    """The error for several places that match equally well. Source: C37."""
    places = tuple(places)
    lines = _first_lines(places)
    count = f"{len(places)} places" if len(places) < _PLACES_SHOWN_MAX else f"at least {len(places)} places"
    listed = ", ".join(str(line) for line in lines)
    on_lines = f"on lines {listed}" if len(lines) > 1 else f"on line {listed}"
    return EditMismatch(f"fits {count} equally well, {on_lines}. {advice}", lines)


def _first_lines(places: Iterable[TextRegion]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(place.first_line for place in places))


_NEAR_LINES = 8
_NEAR_FACTOR = 8
_PLACES_MAX = 20
_ADVICE = "Show more of the lines around it."


class AppliedEdit(Struct, frozen=True):
    """The text after an operation, and the lines (from 1) that it replaced."""

    text: str
    first_line: int
    last_line: int
    note: str | None = None


def apply_hunk(text: str, hunk: Hunk, line: int | None = None, floor: int = 0) -> AppliedEdit | EditMismatch:
    """Apply a hunk. Never raises.

    `line` is the header's line number, shifted by earlier edits; `floor` is the last line (from 1) of the previous
    hunk, 0 if there was none.
    """
    lines = Lines(text)
    if not hunk.without_trailing_blanks.old:
        return _insert(lines, hunk, line, floor)
    if line is not None and tuple(lines.bare[max(0, line - 1) : line - 1 + len(hunk.old)]) == hunk.old:
        return _splice(lines, hunk, TextRegion(0, 0, line, line - 1 + len(hunk.old)))
    for reading in _variants(hunk):
        place = _locate(lines, reading, line, floor)
        if place is not None:
            return place if isinstance(place, EditMismatch) else _put(lines, reading, place)
    return not_found_mismatch(text, block_of(hunk.old), block_of(hunk.new))


def _put(lines: Lines, hunk: Hunk, place: TextRegion) -> AppliedEdit | EditMismatch:
    if place.last_line - place.first_line + 1 == len(hunk.old):
        return _splice(lines, hunk, place)
    return _replace_within(lines, place, block_of(hunk.old), block_of(hunk.new))


def _insert(lines: Lines, hunk: Hunk, line: int | None, floor: int) -> AppliedEdit | EditMismatch:
    if hunk.trailing_blanks and not all(bare.strip() for bare in lines.bare):
        return EditMismatch("adds lines beside a blank one, which may be anywhere. " + _ADVICE)
    index = _insertion_index(lines, hunk.without_trailing_blanks, line, floor)
    return (
        index
        if isinstance(index, EditMismatch)
        else _splice(lines, hunk.without_trailing_blanks, TextRegion(0, 0, index + 1, index))
    )


def _variants(hunk: Hunk) -> Iterator[Hunk]:
    """Yield the hunk as written, then without doubtful blank lines, then without any at its ends."""
    yield hunk
    if hunk.trailing_blanks:
        hunk = hunk.without_trailing_blanks
        yield hunk
    core = _without_blank_ends(hunk)
    if core.signed != hunk.signed:
        yield core


def replace_nearest(text: str, search: str, replacement: str, line: int | None) -> AppliedEdit | EditMismatch:
    """Replace the match of `search`; of several, the nearest to `line`. Never raises."""
    result = replace_region(text, search, replacement)
    if isinstance(result, Replacement):
        return AppliedEdit(result.text, result.place.first_line, result.place.last_line, _leniency(result))
    if not result.candidates:
        return not_found_mismatch(text, search, replacement)
    if line is None:
        return ambiguous_mismatch(result.candidates)
    lines = Lines(text)
    nearest = _nearest(lines, search, line, whole=False)
    return (
        ambiguous_mismatch(result.candidates)
        if nearest is None
        else _replace_within(lines, nearest, search, replacement)
    )


def _leniency(result: Replacement) -> str | None:
    if result.way in ("lines", "exact"):
        return None
    return f"matched lines {result.place.first_line}-{result.place.last_line} with other whitespace."


def _without_blank_ends(hunk: Hunk) -> Hunk:
    """Remove blank context lines at both ends."""
    signed = list(hunk.signed)
    while len(signed) > 1 and not signed[-1].strip():
        signed.pop()
    while len(signed) > 1 and not signed[0].strip():
        signed.pop(0)
    return replace(hunk, signed=tuple(signed))


def _insertion_index(lines: Lines, hunk: Hunk, line: int | None, floor: int) -> int | EditMismatch:
    if line is not None:
        return min(line, len(lines.bare))
    if hunk.after:
        index = _find_after_quoted(lines, hunk.after, floor)
        return index if index is not None else _no_context(hunk)
    if not lines.bare or hunk.strict or hunk.at_end:
        return len(lines.bare)
    return EditMismatch("adds lines without any context lines. " + _ADVICE)


def _no_context(hunk: Hunk) -> EditMismatch:
    quoted = " / ".join(hunk.after)[:200]
    return EditMismatch(f"names a line that is not in the text: {quoted}. Copy it exactly, or write a bare @@.")


def _locate(lines: Lines, hunk: Hunk, line: int | None, floor: int) -> TextRegion | EditMismatch | None:
    """The match of the old lines; EditMismatch if it is ambiguous, None if there is none."""
    wanted = block_of(hunk.old)
    if hunk.at_end:
        tail = len(lines.bare)
        while tail and not lines.bare[tail - 1].strip():
            tail -= 1
        for end in dict.fromkeys((len(lines.bare), tail)):
            at_end = _whole_line_matches(lines, wanted, max(0, end - len(hunk.old)), end)
            if len(at_end) == 1:
                return at_end[0]
    if hunk.after:
        index = _find_after_quoted(lines, hunk.after, floor)
        if index is None and hunk.strict:
            return _no_context(hunk)
        for start in () if index is None else (index, index - 1):
            behind = _whole_line_matches(lines, wanted, max(0, start))
            if behind:
                return behind[0]
    return _choose(lines, wanted, line, floor)


def _choose(lines: Lines, wanted: str, line: int | None, floor: int) -> TextRegion | EditMismatch | None:
    places = _whole_line_matches(lines, wanted)
    if len(places) <= 1:
        return places[0] if places else None
    if line is not None:
        nearest = _nearest(lines, wanted, line, whole=True)
        return nearest if nearest is not None else ambiguous_mismatch(places, _ADVICE)
    behind = _whole_line_matches(lines, wanted, floor)
    return behind[0] if len(behind) == 1 else ambiguous_mismatch(behind or places, _ADVICE)


def _whole_line_matches(lines: Lines, wanted: str, first: int = 0, last: int | None = None) -> list[TextRegion]:
    """Matches of whole lines in lines `first` (from 0) to `last` (exclusive)."""
    start = lines.starts[min(first, len(lines.bare))]
    end = len(lines.text) if last is None else lines.starts[last]
    found = find_region(lines.text[start:end], wanted) if start < end else FoundRegions(None)
    # The lines of a hunk have no line numbers: what looks like one is content.
    places = () if found.way == "unnumbered" else found.places
    return [place for place in (_moved(one, start, first) for one in places) if _is_whole(lines, place)]


def _moved(place: TextRegion, offset: int, lines: int) -> TextRegion:
    return TextRegion(place.start + offset, place.end + offset, place.first_line + lines, place.last_line + lines)


def _is_whole(lines: Lines, place: TextRegion) -> bool:
    before = lines.text[lines.starts[place.first_line - 1] : place.start]
    after = lines.text[place.end : lines.starts[place.last_line]]
    return not before.strip() and not after.strip()


def _find_after_quoted(lines: Lines, after: tuple[str, ...], floor: int) -> int | None:
    """The index after the quoted lines, searched from the previous hunk on and then from the top."""
    for start in dict.fromkeys((floor, 0)):
        index: int | None = start
        for quoted in after:
            index = None if index is None else _find_similar_line(lines, quoted, index)
        if index is not None:
            return index
    return None


def _find_similar_line(lines: Lines, quoted: str, start: int) -> int | None:
    ways: tuple[Callable[[str], str], ...] = (str.rstrip, str.strip, lambda line: " ".join(line.split()))
    for way in ways:
        wanted = way(quoted)
        for index in range(start, len(lines.bare)):
            if way(lines.bare[index]) == wanted:
                return index + 1
    return None


def _nearest(lines: Lines, search: str, line: int, *, whole: bool) -> TextRegion | None:
    """The nearest of several matches to `line`; None if two are equally near.

    A search finds 20 matches at most, so if there are more, increasing windows are searched.
    """
    everywhere = find_region(lines.text, search)
    count = len(lines.bare)
    line = min(line, count)
    places: Iterable[TextRegion] = everywhere.places
    reach = _NEAR_LINES + search.count("\n")
    while len(everywhere.places) == _PLACES_MAX and reach < count:
        first, last = max(0, line - reach), min(count, line + reach)
        found = find_region(lines.text[lines.starts[first] : lines.starts[last]], search)
        if found.places and found.way == everywhere.way:
            places = (_moved(one, lines.starts[first], first) for one in found.places)
            break
        reach *= _NEAR_FACTOR
    by_distance = sorted(
        (abs(one.first_line - line), one.start, one) for one in places if not whole or _is_whole(lines, one)
    )
    tied = len(by_distance) > 1 and by_distance[0][0] == by_distance[1][0]
    return None if tied or not by_distance else by_distance[0][2]


def _replace_within(lines: Lines, place: TextRegion, search: str, replacement: str) -> AppliedEdit | EditMismatch:
    start, end = lines.starts[place.first_line - 1], lines.starts[place.last_line]
    result = replace_region(lines.text[start:end], search, replacement)
    if not isinstance(result, Replacement):
        return (
            ambiguous_mismatch(result.candidates)
            if result.candidates
            else not_found_mismatch(lines.text, search, replacement)
        )
    text = lines.text[:start] + result.text + lines.text[end:]
    return AppliedEdit(text, place.first_line, place.last_line)


def _splice(lines: Lines, hunk: Hunk, place: TextRegion) -> AppliedEdit:
    """Apply a hunk line by line to a match with as many lines as the hunk has old ones."""
    first, last = place.first_line - 1, place.last_line
    hunk = replace(hunk, signed=tuple(_without_repeats(hunk.signed)))
    added = _added(hunk, lines.bare[first:last])
    pieces: list[str] = []
    index = first
    for signed in hunk.signed:
        if signed[0] == "+":
            pieces.append(next(added))
            continue
        if signed[0] == " ":
            pieces.append(lines.text[lines.starts[index] : lines.starts[index + 1]])
        index += 1
    return AppliedEdit(_join(lines, hunk, pieces, first, last), place.first_line, place.last_line)


def _without_repeats(signed: tuple[str, ...]) -> Iterator[str]:
    """The lines of a hunk; what it takes out and puts in again unchanged is context."""
    for is_change, run in groupby(signed, lambda line: line[0] != " "):
        if not is_change:
            yield from run
            continue
        lines = list(run)
        old, new = ([line[1:] for line in lines if line[0] == sign] for sign in "-+")
        at = 0
        for change in [*diff_lines(old, new), LineChange(len(old), len(old), len(new), len(new))]:
            yield from (" " + line for line in old[at : change.old_from])
            yield from ("-" + line for line in old[change.old_from : change.old_to])
            yield from ("+" + line for line in new[change.new_from : change.new_to])
            at = change.old_to


def _added(hunk: Hunk, matched: list[str]) -> Iterator[str]:
    added = "\n".join(line[1:] for line in hunk.signed if line[0] == "+")
    return iter(reindent("\n".join(hunk.old), "\n".join(matched), added).split("\n"))


def _join(lines: Lines, hunk: Hunk, pieces: list[str], first: int, last: int) -> str:
    """Put the pieces in the place of lines `first` to `last` (exclusive), each with its line end."""
    text = lines.text
    line_end = with_line_ends_of(text, "\n")
    head, tail = text[: lines.starts[first]], text[lines.starts[last] :]
    pieces = [piece if piece.endswith("\n") else piece + line_end for piece in ([head] if head else []) + pieces]
    if pieces and not tail and last == len(lines.bare) and _ends_bare(text, hunk):
        pieces[-1] = pieces[-1].removesuffix("\n").removesuffix("\r")
    return "".join(pieces) + tail


def _ends_bare(text: str, hunk: Hunk) -> bool:
    """Whether no newline ends the text after: what the hunk says, where it is right about the text before."""
    was_bare = bool(text) and not text.endswith("\n")
    if hunk.old_lacks_newline == hunk.new_lacks_newline:
        return was_bare or (hunk.new_lacks_newline and not text)
    return hunk.new_lacks_newline

"""Keeps the lines of a text where a search and its replacement agree.

A model's copy of a text is rarely exact: quotes are straight, blanks at line ends are gone, a tab is a space. What it
did not mean to change must stay as the text has it: every line of the search that is in the replacement, too.
"""

from __future__ import annotations

import re
from itertools import accumulate, pairwise

from turnwright_core.patterns.line_diff import LineChange, diff_lines
from turnwright_core.patterns.lines import with_line_ends_of
from turnwright_core.patterns.typography import letters_of

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

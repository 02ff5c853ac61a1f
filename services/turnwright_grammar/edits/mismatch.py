"""Error messages for the model about an edit that does not match the text."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from turnwright_core.patterns.lines import TextRegion
from turnwright_core.patterns.regions import find_region
from turnwright_core.patterns.similar import nearest_region

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

"""The region of a text that is most similar to a searched one, shown to the model in a conflict."""

from __future__ import annotations

from difflib import SequenceMatcher

from msgspec import Struct

LINES_SHOWN_MAX = 12
_LINES_COMPARED_MAX = 2_000
_LINES_MEASURED_MAX = 40
_LINE_CHARS_MAX = 200
_RATIO_MIN = 0.6


class Region(Struct, frozen=True):
    """Lines of the text from `first_line` (1-based), at most 12."""

    first_line: int
    lines: tuple[str, ...]


def nearest_region(text: str, search: str) -> Region | None:
    """The most similar region, or None if nothing is similar.

    First the window that shares most lines with `search`; if none shares any, the line most similar to the first
    searched line, among the first 2,000 lines. Never raises.
    """
    lines = [line.rstrip("\r") for line in text.split("\n")]
    wanted = [line.strip() for line in search.split("\n") if line.strip()]
    if not wanted:
        return None
    first = _sharing_most(lines, wanted)
    if first is None:
        first = _most_alike(lines, wanted[0])
    if first is None:
        return None
    count = min(len(wanted), LINES_SHOWN_MAX)
    return Region(first + 1, tuple(lines[first : first + count]))


def _sharing_most(lines: list[str], wanted: list[str]) -> int | None:
    # Short lines (`}`) are everywhere and are no evidence.
    distinctive = {line for line in wanted if len(line) > 2}
    hits = [line.strip() in distinctive for line in lines]
    width = len(wanted)
    score = sum(hits[:width])
    best, best_at = score, 0

    def begins(index: int) -> bool:
        return lines[index].strip() == wanted[0]

    for index in range(1, max(1, len(lines) - width + 1)):
        score += (hits[index + width - 1] if index + width - 1 < len(hits) else 0) - hits[index - 1]
        # Of equal windows, prefer the one that begins like the search.
        if score > best or (score == best and begins(index) and not begins(best_at)):
            best, best_at = score, index
    return best_at if best else None


def _most_alike(lines: list[str], wanted: str) -> int | None:
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted[:_LINE_CHARS_MAX].casefold())

    def prepared(index: int) -> SequenceMatcher[str]:
        matcher.set_seq1(lines[index].strip()[:_LINE_CHARS_MAX].casefold())
        return matcher

    # The exact ratio is cubic in the worst case: it is computed only for the lines with the best upper bounds.
    bounds = [(prepared(index).quick_ratio(), -index) for index in range(min(len(lines), _LINES_COMPARED_MAX))]
    hopeful = [-place for bound, place in sorted(bounds, reverse=True)[:_LINES_MEASURED_MAX] if bound > _RATIO_MIN]
    measured = [(prepared(index).ratio(), -index) for index in hopeful]
    best, place = max(measured, default=(0.0, 0))
    return -place if best > _RATIO_MIN else None

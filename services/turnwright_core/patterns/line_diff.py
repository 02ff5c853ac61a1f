"""Line diff in bounded time (patience diff).

The standard library's SequenceMatcher is cubic for repeated lines: two texts of 20 KB take it forty seconds. Here lines
that occur once in both texts are anchors, and the matcher only sees what lies between two of them, as long as its worst
case stays within a limit. Beyond the limit the stretch between two anchors is one replacement: never wrong, only longer
than necessary.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from difflib import SequenceMatcher

from msgspec import Struct

STEPS_MAX = 10_000_000
_DEPTH_MAX = 10


class LineChange(Struct, frozen=True):
    """Lines `old_from` to `old_to` (0-based, exclusive) became lines `new_from` to `new_to`."""

    old_from: int
    old_to: int
    new_from: int
    new_to: int


def diff_lines(old: list[str], new: list[str]) -> list[LineChange]:
    """The differences, in order; adjacent lines are one change. Never raises; about linear."""
    numbers: dict[str, int] = {}
    comparison = _Comparison(
        [numbers.setdefault(line, len(numbers)) for line in old],
        [numbers.setdefault(line, len(numbers)) for line in new],
    )
    comparison.compare(LineChange(0, len(old), 0, len(new)), 0)
    return comparison.found


class _Comparison:
    def __init__(self, old: list[int], new: list[int]) -> None:
        self.old = old
        self.new = new
        self.found: list[LineChange] = []
        self.steps = 0

    def compare(self, part: LineChange, depth: int) -> None:
        """Add the changes within `part`, which must not begin before those found so far."""
        part = self._without_equal_ends(part)
        if part.old_from == part.old_to or part.new_from == part.new_to:
            self._add(part)
            return
        matches = self._anchors(part) if depth < _DEPTH_MAX else []
        gap_depth = depth + 1
        if not matches:
            matches, gap_depth = self._matches(part), _DEPTH_MAX
        if not matches:
            self._add(part)
            return
        old_at, new_at = part.old_from, part.new_from
        for old_line, new_line in [*matches, (part.old_to, part.new_to)]:
            if (old_at, new_at) != (old_line, new_line):
                self.compare(LineChange(old_at, old_line, new_at, new_line), gap_depth)
            old_at, new_at = old_line + 1, new_line + 1

    def _add(self, part: LineChange) -> None:
        if part.old_from == part.old_to and part.new_from == part.new_to:
            return
        last = self.found[-1] if self.found else None
        if last and (last.old_to, last.new_to) == (part.old_from, part.new_from):
            self.found[-1] = LineChange(last.old_from, part.old_to, last.new_from, part.new_to)
        else:
            self.found.append(part)

    def _without_equal_ends(self, part: LineChange) -> LineChange:
        old_from, old_to, new_from, new_to = part.old_from, part.old_to, part.new_from, part.new_to
        while old_from < old_to and new_from < new_to and self.old[old_from] == self.new[new_from]:
            old_from, new_from = old_from + 1, new_from + 1
        while old_from < old_to and new_from < new_to and self.old[old_to - 1] == self.new[new_to - 1]:
            old_to, new_to = old_to - 1, new_to - 1
        return LineChange(old_from, old_to, new_from, new_to)

    def _anchors(self, part: LineChange) -> list[tuple[int, int]]:
        """The longest increasing sequence of lines that occur once on each side."""
        old_counts = Counter(self.old[part.old_from : part.old_to])
        new_counts = Counter(self.new[part.new_from : part.new_to])
        places = {self.new[at]: at for at in range(part.new_from, part.new_to) if new_counts[self.new[at]] == 1}
        pairs = [
            (at, places[self.old[at]])
            for at in range(part.old_from, part.old_to)
            if old_counts[self.old[at]] == 1 and self.old[at] in places
        ]
        return _ascending(pairs)

    def _matches(self, part: LineChange) -> list[tuple[int, int]]:
        """The lines that the library finds equal; none if that could take too long."""
        old, new = self.old[part.old_from : part.old_to], self.new[part.new_from : part.new_to]
        self.steps += len(old) * len(new) * min(len(old), len(new))
        if self.steps > STEPS_MAX:
            return []
        blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        return [(part.old_from + at + i, part.new_from + to + i) for at, to, size in blocks for i in range(size)]


def _ascending(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest subsequence of `pairs` (sorted by their first) that increases in the second, too."""
    tops: list[int] = []  # the second of the lowest pair that ends a series of each length
    ends: list[int] = []  # which pair that is
    before: list[int] = []  # for each pair the one before it in its series
    for index, (_, second) in enumerate(pairs):
        length = bisect_left(tops, second)
        before.append(ends[length - 1] if length else -1)
        tops[length : length + 1] = [second]
        ends[length : length + 1] = [index]
    series: list[tuple[int, int]] = []
    index = ends[-1] if ends else -1
    while index >= 0:
        series.append(pairs[index])
        index = before[index]
    series.reverse()
    return series

"""Unified diffs of two texts, for people and for telemetry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

_LINES_COMPARED_MAX = 5_000
_NO_NEWLINE = "\\ No newline at end of file\n"

_Opcode = tuple[str, int, int, int, int]


def unified_patch(path: str, old: str, new: str, *, context_lines: int = 3) -> str:
    """Return the unified diff of `old` and `new` under `path`; empty when they are equal.

    What both begin and end with is set aside first, so that a small edit of a long text stays small however often
    its lines repeat. What is left of two large texts that differ everywhere is shown as one replacement, because the
    search for the smallest diff is quadratic. Source: RU273 (generatePatch).
    """
    if old == new:
        return ""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    lines = [f"--- a/{path}\n", f"+++ b/{path}\n", *_hunks(before, after, context_lines)]
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in lines)


def _hunks(before: list[str], after: list[str], context_lines: int) -> Iterator[str]:
    head, tail = _shared(before, after)
    start = max(0, head - context_lines)
    beyond = max(0, tail - context_lines)
    old, new = before[start : len(before) - beyond], after[start : len(after) - beyond]
    for group in _groups(old, new, head - start, tail - beyond, context_lines):
        first, last = group[0], group[-1]
        yield f"@@ -{_range(start + first[1], last[2] - first[1])} +{_range(start + first[3], last[4] - first[3])} @@\n"
        for kind, old_from, old_to, new_from, new_to in group:
            if kind == "equal":
                yield from (" " + line for line in old[old_from:old_to])
                continue
            yield from ("-" + line for line in old[old_from:old_to])
            yield from ("+" + line for line in new[new_from:new_to])


def _shared(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """How many lines both begin with, and how many both end with, none counted twice."""
    shorter = min(len(before), len(after))
    head = 0
    while head < shorter and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < shorter - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    return head, tail


def _groups(old: list[str], new: list[str], head: int, tail: int, context_lines: int) -> Iterator[Sequence[_Opcode]]:
    """The changes with their context; one replacement between head and tail where the texts are too large."""
    if max(len(old), len(new)) <= _LINES_COMPARED_MAX:
        yield from SequenceMatcher(None, old, new).get_grouped_opcodes(context_lines)
        return
    end_old, end_new = len(old) - tail, len(new) - tail
    yield [
        ("equal", 0, head, 0, head),
        ("replace", head, end_old, head, end_new),
        ("equal", end_old, len(old), end_new, len(new)),
    ]


def _range(start: int, length: int) -> str:
    """Lines of a hunk as the format counts them: from 1, and an empty range stands behind the line before it."""
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"

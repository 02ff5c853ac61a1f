"""Unified diffs of two texts, for people and for telemetry."""

from __future__ import annotations

from difflib import unified_diff

_LINES_COMPARED_MAX = 5_000
_NO_NEWLINE = "\\ No newline at end of file\n"


def unified_patch(path: str, old: str, new: str, *, context_lines: int = 3) -> str:
    """Return the unified diff of `old` and `new` under `path`; empty when they are equal.

    Two large texts that differ everywhere are shown as one replacement, because the search for the
    smallest diff is quadratic. Source: RU273 (generatePatch).
    """
    if old == new:
        return ""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    if max(len(before), len(after)) > _LINES_COMPARED_MAX:
        diff = _coarse(before, after, path, context_lines)
    else:
        diff = list(unified_diff(before, after, f"a/{path}", f"b/{path}", n=context_lines))
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in diff)


def _coarse(before: list[str], after: list[str], path: str, context_lines: int) -> list[str]:
    """One hunk from the first difference to the last."""
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    start, end_old, end_new = max(0, head - context_lines), len(before) - tail, len(after) - tail
    kept_after = before[end_old : end_old + context_lines]
    count_old = end_old + len(kept_after) - start
    count_new = end_new + len(kept_after) - start
    return [
        f"--- a/{path}\n",
        f"+++ b/{path}\n",
        f"@@ -{start + 1},{count_old} +{start + 1},{count_new} @@\n",
        *(" " + line for line in before[start:head]),
        *("-" + line for line in before[head:end_old]),
        *("+" + line for line in after[head:end_new]),
        *(" " + line for line in kept_after),
    ]

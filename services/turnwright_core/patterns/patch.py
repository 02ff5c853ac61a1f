"""Unified diffs of two texts, for people and for telemetry."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator

from msgspec import Struct

from turnwright_core.patterns.line_diff import LineChange, diff_lines

_NO_NEWLINE = "\\ No newline at end of file\n"


def unified_patch(path: str, old: str, new: str, *, context_lines: int = 3) -> str:
    r"""Return the unified diff of `old` and `new` under `path`; empty when they are equal.

    Lines end at `\n` only, as the tools that apply patches see them. A small edit of a long text is a
    small patch however often its lines repeat; a rewrite of a large text may be shown as fewer and larger
    replacements than needed. Never raises. Source: RU273 (generatePatch).
    """
    if old == new:
        return ""
    before, after = _lines(old), _lines(new)
    lines = [f"--- a/{path}\n", f"+++ b/{path}\n"]
    for hunk in _hunks(diff_lines(before, after), context_lines):
        lines += _written(hunk, before, after, context_lines)
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in lines)


class PatchHunk(Struct, frozen=True):
    """One hunk of a unified diff: the lines that it replaces and those that it puts there, context included."""

    new_from: int
    """Index of its first line in the new text."""
    old: tuple[str, ...]
    new: tuple[str, ...]
    text: str
    """The hunk as it stands in the diff."""


def hunks_of(patch: str) -> list[PatchHunk]:
    """The hunks of a diff of one file, as `unified_patch` writes it. Raises ValueError if it is not one."""
    hunks: list[PatchHunk] = []
    for part in ("\n" + patch).split("\n@@ ")[1:]:
        head, _, body = part.removesuffix("\n").partition("\n")
        old: list[str] = []
        new: list[str] = []
        last: tuple[list[str], ...] = ()
        for line in body.split("\n"):
            if line.startswith("\\"):
                for side in last:
                    side[-1] = side[-1].removesuffix("\n")
                continue
            last = {" ": (old, new), "-": (old,), "+": (new,)}.get(line[:1], ())
            if not last:
                raise ValueError(f"{line!r} is not a line of a diff")
            for side in last:
                side.append(line[1:] + "\n")
        start = int(head.split("+", 1)[1].split(" ", 1)[0].split(",", 1)[0])
        hunks.append(PatchHunk(start - 1 if new else start, tuple(old), tuple(new), f"@@ {head}\n{body}\n"))
    return hunks


def without_hunks(text: str, hunks: Collection[PatchHunk]) -> str | None:
    """The new text of a diff with these hunks of it taken back; None if it is not what the diff was made of."""
    lines = _lines(text)
    for hunk in sorted(hunks, key=lambda hunk: hunk.new_from, reverse=True):
        place = slice(hunk.new_from, hunk.new_from + len(hunk.new))
        if tuple(lines[place]) != hunk.new:
            return None
        lines[place] = hunk.old
    return "".join(lines)


def text_before(patch: str, new: str, base_hash: str) -> str | None:
    """The text from which a diff leads to `new`, if it has this SHA-256; None: there was none, or it cannot be told."""
    try:
        old = without_hunks(new, hunks_of(patch)) if base_hash else None
    except (ValueError, IndexError):
        return None
    return old if old is not None and hashlib.sha256(old.encode()).hexdigest() == base_hash else None


def _lines(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop().removesuffix("\n")
    return [*lines, last] if last else lines


def _hunks(found: list[LineChange], context_lines: int) -> Iterator[list[LineChange]]:
    hunk: list[LineChange] = []
    for change in found:
        if hunk and change.old_from - hunk[-1].old_to > 2 * context_lines:
            yield hunk
            hunk = []
        hunk.append(change)
    if hunk:
        yield hunk


def _written(hunk: list[LineChange], before: list[str], after: list[str], context_lines: int) -> Iterator[str]:
    first, last = hunk[0], hunk[-1]
    above = min(context_lines, first.old_from)
    below = min(context_lines, len(before) - last.old_to)
    old_from, new_from = first.old_from - above, first.new_from - above
    old_range = _range(old_from, last.old_to + below - old_from)
    yield f"@@ -{old_range} +{_range(new_from, last.new_to + below - new_from)} @@\n"
    at = old_from
    for change in hunk:
        yield from (" " + line for line in before[at : change.old_from])
        yield from ("-" + line for line in before[change.old_from : change.old_to])
        yield from ("+" + line for line in after[change.new_from : change.new_to])
        at = change.old_to
    yield from (" " + line for line in before[at : at + below])


def _range(start: int, length: int) -> str:
    """Lines of a hunk as the format counts them: from 1, and an empty range stands behind the line before it."""
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"

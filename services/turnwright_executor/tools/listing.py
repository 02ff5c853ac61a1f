"""One-line descriptions of entries for records of commands (row RU083)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from turnwright_core.text import count_tokens

LISTED_MAX: Final = 200
"""Most lines that the record of a command lists: it stays in the log. A preview lists all matches."""


def line_count(text: str) -> int:
    """Number of lines in a text; a final newline begins no further line."""
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def described(path: str, text: str, divisor: int) -> str:
    """`src/app.py: 12 lines, 140 tokens`; `divisor` is how many characters make a token."""
    return f"{path}: {plural(line_count(text), 'line')}, {plural(count_tokens(text, divisor), 'token')}"


def listed(lines: Sequence[str], lines_max: int) -> str:
    """The lines, and how many more there are."""
    more = len(lines) - lines_max
    return "\n".join([*lines[:lines_max], *([f"... and {more} more"] if more > 0 else [])])


def changed_files(files: Iterable[dict[str, object]]) -> dict[str, object]:
    coming = iter(files)
    shown = list(islice(coming, LISTED_MAX))
    more = sum(1 for _ in coming)
    return {"changed": shown} | ({"changed_more": more} if more else {})

"""Destinations of copies and moves. Source: rows RU026, RU027."""

from __future__ import annotations

import re
from typing import Final

from turnwright_core.patterns.shapes import Shape, shape_of
from turnwright_core.patterns.typography import composed

_SPECIAL: Final = re.compile(r"[*?\[{!@+(/]")


def destination(pattern: str, source: str, to: str) -> str:
    """The destination of one entry that matches a pattern.

    `known://plan_*` to `known://old/`: `known://old/plan_a`. `src/**/*.py` to `lib/`: `src/a/b.py` goes to
    `lib/a/b.py`. An exact source goes exactly to `to`, or into it if it ends with a slash.
    """
    if composed(source) == composed(pattern.strip()) or shape_of(pattern) is Shape.LITERAL:
        return to + source.rstrip("/").rpartition("/")[2] if to.endswith("/") else to
    folder = _fixed_folder(pattern)
    is_below = composed(source).startswith(composed(folder))
    kept = source.split("/", folder.count("/"))[-1] if is_below else source.rpartition("/")[2]
    return f"{to}{kept}" if to.endswith("/") else f"{to}/{kept}"


def _fixed_folder(pattern: str) -> str:
    """The part of a pattern up to the last slash before its first wildcard: `src/**/*.py` -> `src/`."""
    pattern = pattern.removeprefix("./")
    special = next((found.start() for found in _SPECIAL.finditer(pattern) if found[0] != "/"), len(pattern))
    return pattern[: pattern.rfind("/", 0, special) + 1]

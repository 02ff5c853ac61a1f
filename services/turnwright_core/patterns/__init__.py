"""Patterns over paths and contents, and patches of texts.

A pattern is a glob, a `/regex/flags`, an xpath, a jsonpath or plain text, told apart by shape (see
`shapes`). `match` (or `matcher`, for many strings), `search`, `find` and `replace` answer or raise
`PatternError`; none hangs, because every run has a deadline.

`replace_region` replaces what a model wrote down from memory, tolerant of whitespace; `unified_patch`
shows two texts as a diff, and `without_hunks` takes some of it back. None of them raises.

Source: architecture section 5, RU272 to RU276, RU294.
"""

from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.lines import Lines, TextRegion, block_of, lines_in, with_line_ends_of
from turnwright_core.patterns.matching import find, match, matcher, replace, search
from turnwright_core.patterns.patch import PatchHunk, hunks_of, unified_patch, without_hunks
from turnwright_core.patterns.regions import FoundRegions, Way, find_region
from turnwright_core.patterns.replacing import NoMatch, Replacement, replace_region
from turnwright_core.patterns.shapes import Shape, shape_of
from turnwright_core.patterns.similar import Region, nearest_region

__all__ = [
    "FoundRegions",
    "Lines",
    "NoMatch",
    "PatchHunk",
    "PatternError",
    "Region",
    "Replacement",
    "Shape",
    "TextRegion",
    "Way",
    "block_of",
    "find",
    "find_region",
    "hunks_of",
    "lines_in",
    "match",
    "matcher",
    "nearest_region",
    "replace",
    "replace_region",
    "search",
    "shape_of",
    "unified_patch",
    "with_line_ends_of",
    "without_hunks",
]

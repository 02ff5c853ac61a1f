r"""What kind of pattern a text is, decided by its shape alone.

| shape | kind |
|---|---|
| `/inner/flags`, flags of JavaScript, and `inner` does not read as a path | regex |
| holds `*`, `?`, a non-empty `[...]`, `{a,b}` or `!(...)` | glob |
| anything else | literal |

A path such as `/srv/app/` has the outer shape of a regex. It is one only if its inner slashes are
escaped or it holds a character that globs do not use (`^ $ + ( ) | \\`), because models write
absolute paths far more often than regexes with bare slashes.
"""

from __future__ import annotations

import re
from enum import Enum

_REGEX_SHAPE = re.compile(r"/(?P<inner>.+)/(?P<flags>[dgimsuvy]*)\Z", re.DOTALL)
_BARE_SLASH = re.compile(r"(?<!\\)/")
_REGEX_ONLY = re.compile(r"[\^$+()|\\]")
# Counted, so that a long text of openers costs linear time.
_GLOB_SHAPE = re.compile(
    r"""
      \* | \?
    | \[ [^\]/]{1,200}+ \]        # a class needs a member: `:x[]` is text
    | \{ [^{},]{0,200}+,[^{}]{0,200}+ \} # a brace list needs a comma
    | [!@+] \( [^()]{0,200}+ \) # extended groups
    """,
    re.VERBOSE,
)


class Shape(Enum):
    """The kinds of pattern. Source: RU274 (xpath and jsonpath are not offered)."""

    GLOB = "glob"
    LITERAL = "literal"
    REGEX = "regex"


def shape_of(pattern: str) -> Shape:
    """Return the kind of `pattern` by its syntactic shape. Never raises."""
    if split_regex(pattern) is not None:
        return Shape.REGEX
    if _GLOB_SHAPE.search(pattern):
        return Shape.GLOB
    return Shape.LITERAL


def split_regex(pattern: str) -> tuple[str, str] | None:
    """Return `(inner, flags)` of a `/inner/flags` pattern, or None when it has another shape."""
    found = _REGEX_SHAPE.match(pattern)
    if found is None or pattern.startswith("//"):
        return None
    inner, flags = found["inner"], found["flags"]
    if _BARE_SLASH.search(inner) and not _REGEX_ONLY.search(inner):
        return None
    return inner, flags

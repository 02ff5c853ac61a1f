"""Small text rules that several packages share: slugs, schemes, token estimates, line slices."""

from __future__ import annotations

import re
from collections.abc import Container
from functools import lru_cache
from urllib.parse import quote

from msgspec import Struct

SLUG_CHARS_MAX = 80
_SEPARATOR = re.compile(r"[,/]")
_SPACES = re.compile(r"\s+")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# What JavaScript's encodeURIComponent leaves alone beside letters, digits and `_.-~`.
_UNENCODED = "!*'()"


class LineSlice(Struct, frozen=True):
    """Lines `first` to `last` (from 1, inclusive) of a text of `total` lines, joined as they were.

    An empty slice has `last == first - 1`.
    """

    text: str
    first: int
    last: int
    total: int


def slugify(text: str) -> str:
    """Return `text` as a path segment or several: commas and slashes separate, spaces become `_`.

    The first 80 code points are kept, then each segment is URI-encoded, so a slug can be longer
    than 80. Source: RU295, C33.
    """
    segments = (_SPACES.sub("_", segment.strip()) for segment in _SEPARATOR.split(text[:SLUG_CHARS_MAX]))
    return "/".join(quote(segment, safe=_UNENCODED, errors="replace") for segment in segments if segment)


def free_path(path: str, taken: Container[str]) -> str:
    """The path, or the first of `path+2`, `path+3`, ... that is free. A slug never contains a plus."""
    suffix, candidate = 1, path
    while candidate in taken:
        suffix += 1
        candidate = f"{path}+{suffix}"
    return candidate


# A request asks for the scheme of the same path again and again.
@lru_cache(maxsize=1024)
def scheme_of(path: str | None) -> str | None:
    """Return the scheme of `scheme://...`, or None for a bare path, an empty one or None. Source: RU294."""
    found = _SCHEME.match(path or "")
    return found[1] if found else None


def tokens_of(chars: int, divisor: int = 2) -> int:
    """Estimated tokens of this many code points: the quotient by `divisor` (from 1), rounded up."""
    return -(-chars // divisor)


def count_tokens(text: str, divisor: int = 2) -> int:
    return tokens_of(len(text), divisor)


def ascii_lower(text: str) -> str:
    """Lower case without a change of length, so that offsets stay valid."""
    return text.lower() if text.isascii() else "".join(c.lower() if c.isascii() else c for c in text)


def cut_bytes(text: str, bytes_max: int) -> str:
    """The longest prefix of `text` within this many bytes of UTF-8, without splitting a character."""
    if len(text) * 4 <= bytes_max:
        return text
    return text.encode(errors="replace")[:bytes_max].decode(errors="ignore")


def slice_lines(body: str, line: int | None = None, limit: int | None = None) -> LineSlice:
    """Return `limit` lines of `body` from `line` on.

    `line` counts from 1; a negative one counts from the end (-5 is the last five lines). Without
    `limit` the slice runs to the end; a negative `limit` without `line` is a tail. Both are
    clamped, so nothing raises. A final newline ends the last line and begins no other.
    """
    lines = body.split("\n")
    if len(lines) > 1 and lines[-1] == "":
        lines.pop()
    total = len(lines)
    if line is None and limit is not None and limit < 0:
        line, limit = limit, None
    start = 1 if line is None else line
    first = max(1, total + start + 1) if start < 0 else max(1, start)
    count = total if limit is None else max(0, limit)
    first = min(first, total + 1)
    last = min(total, first + count - 1)
    return LineSlice("\n".join(lines[first - 1 : last]), first, last, total)


_HOSTED = re.compile(r"([a-z][a-z0-9_]{0,23}):(/.*)", re.DOTALL)


def host_and_path(root: str) -> tuple[str, str]:
    """The sandbox host of a project's root, and the path there; no host: it is a path of the executor's own host."""
    found = _HOSTED.fullmatch(root)
    return (found[1], found[2]) if found else ("", root)

"""Patterns over paths and contents: match, search, replace.

A pattern is a glob, a `/regex/flags` or plain text, told apart by shape (see `shapes`). Every
function either answers or raises `PatternError`; none hangs, because every run has a deadline.

Source: architecture section 5, RU273 to RU276, RU294.
"""

from __future__ import annotations

from functools import partial

import regex

from turnwright_core.patterns.compiled import Compiled, compiled, within_deadline
from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.shapes import Shape, shape_of

__all__ = ["PatternError", "Shape", "find", "match", "replace", "search", "shape_of"]

_REFERENCE = regex.compile(r"\$(?:(?P<number>\d{1,2})|<(?P<name>\w+)>|(?P<whole>&)|(?P<dollar>\$))")


def match(pattern: str, string: str | None) -> bool:
    """Return whether the whole of `string` fits `pattern`; None fits nothing.

    A glob or a literal also fits a string equal to itself, so that paths with brackets stay
    reachable by name. Raises PatternError.

    Source: RU273 (full string, for regexes too).
    """
    if string is None:
        return False
    ready = compiled(pattern)
    if ready.shape is not Shape.REGEX and pattern == string:
        return True
    found = any(within_deadline(pattern, partial(_fullmatch, one, string)) is not None for one in ready.whole)
    return found is not ready.inverted


def search(pattern: str, string: str | None) -> bool:
    """Return whether some part of `string` fits `pattern`. Raises PatternError. Source: RU273."""
    if string is None:
        return False
    if compiled(pattern).inverted:
        return find(pattern[1:], string) is None
    return find(pattern, string) is not None


def find(pattern: str, string: str) -> str | None:
    """Return the first part of `string` that fits `pattern`, or None. Raises PatternError."""
    for one in compiled(pattern).part:
        found = within_deadline(pattern, partial(_searched, one, string))
        if found is not None:
            return str(found[0])
    return pattern if pattern and pattern in string else None


def replace(pattern: str, replacement: str, string: str) -> str:
    """Return `string` with what fits `pattern` replaced.

    Globs and literals replace every occurrence; a regex the first one, or all with the `g` flag,
    and may refer to its groups as `$1`, `$<name>`, `$&` (`$$` is a dollar). Raises PatternError.
    """
    ready = compiled(pattern)
    if ready.shape is Shape.LITERAL:
        return string.replace(pattern, replacement) if pattern else string
    for one in ready.part:
        string = _replaced(ready, one, replacement, string)
    return string


def _fullmatch(one: regex.Pattern[str], string: str, limit_s: float) -> regex.Match[str] | None:
    return one.fullmatch(string, timeout=limit_s)


def _searched(one: regex.Pattern[str], string: str, limit_s: float) -> regex.Match[str] | None:
    return one.search(string, timeout=limit_s)


def _replaced(ready: Compiled, one: regex.Pattern[str], replacement: str, string: str) -> str:
    is_regex = ready.shape is Shape.REGEX

    def filled(found: regex.Match[str]) -> str:
        return _REFERENCE.sub(lambda reference: _referred(reference, found), replacement) if is_regex else replacement

    count = 0 if ready.every else 1
    return within_deadline(ready.source, lambda limit_s: str(one.sub(filled, string, count=count, timeout=limit_s)))


def _referred(reference: regex.Match[str], found: regex.Match[str]) -> str:
    if reference["dollar"]:
        return "$"
    if reference["whole"]:
        return str(found[0])
    try:
        return str(found[reference["name"] or int(reference["number"])] or "")
    except (IndexError, KeyError):
        return str(reference[0])

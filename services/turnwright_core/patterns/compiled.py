"""Patterns made ready to run, kept in a bounded cache.

Globs become regular expressions too (wcmatch writes them), so that one engine with one deadline
runs everything: a pattern comes from a model and may be hostile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TypeVar

import regex
from wcmatch import fnmatch, glob
from wcmatch._wcparse import PatternLimitException

from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.shapes import Shape, shape_of, split_regex

# The engine prepares long literal runs in cubic time and outside its deadline: 2,000 equal characters
# take seconds, 500 a few milliseconds.
PATTERN_CHARS_MAX = 500
PATTERN_TIMEOUT_S = 0.5
PATTERN_CACHE_MAX = 512
BRACE_EXPANSIONS_MAX = 200
REPEAT_PRODUCT_MAX = 10_000
_PATH_FLAGS = glob.GLOBSTAR | glob.EXTGLOB | glob.BRACE | glob.CASE | glob.FORCEUNIX
_SCHEME_FLAGS = fnmatch.EXTMATCH | fnmatch.BRACE | fnmatch.CASE | fnmatch.FORCEUNIX | fnmatch.DOTMATCH
_BOUNDED_REPEAT = regex.compile(r"\{(\d*)(?:,(\d*))?\}")
_FLAGS = {"i": regex.IGNORECASE, "m": regex.MULTILINE, "s": regex.DOTALL}

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A pattern that runs: `whole` are tried as full matches, `part` as substrings; a literal has none.

    `inverted` turns a glob's verdict around (`!*.js`); `every` is the `g` flag of a regex.
    """

    source: str
    shape: Shape
    whole: tuple[regex.Pattern[str], ...]
    part: tuple[regex.Pattern[str], ...]
    inverted: bool = False
    every: bool = True


@lru_cache(maxsize=PATTERN_CACHE_MAX)
def compiled(pattern: str) -> Compiled:
    """Return `pattern` compiled. Raises PatternError; failures are not cached."""
    shape = shape_of(pattern)
    if shape is Shape.LITERAL:
        return Compiled(pattern, shape, (), ())
    if len(pattern) > PATTERN_CHARS_MAX:
        raise PatternError("too_long", pattern, f"A pattern has at most {PATTERN_CHARS_MAX} characters")
    return _compiled_regex(pattern) if shape is Shape.REGEX else _compiled_glob(pattern)


def within_deadline(pattern: str, run: Callable[[float], Result]) -> Result:
    """Call `run` with the deadline in seconds; an overrun becomes a PatternError."""
    try:
        return run(PATTERN_TIMEOUT_S)
    except TimeoutError:
        detail = f"The pattern took longer than {PATTERN_TIMEOUT_S} s; use a simpler one"
        raise PatternError("timeout", pattern, detail) from None


def _compiled_regex(pattern: str) -> Compiled:
    inner, flags = split_regex(pattern) or (pattern, "")
    product = prod(max(int(low or 1), int(high or 1), 1) for low, high in _BOUNDED_REPEAT.findall(inner))
    if product > REPEAT_PRODUCT_MAX:
        # The engine unrolls counted repeats when it compiles, before any deadline runs.
        raise PatternError("too_large", pattern, "The counted repeats of the regex multiply too high")
    bits = sum(_FLAGS.get(flag, 0) for flag in set(flags))
    ready = (_engine(inner, bits, pattern),)
    return Compiled(pattern, Shape.REGEX, ready, ready, every="g" in flags)


def _compiled_glob(pattern: str) -> Compiled:
    inverted = pattern.startswith("!") and not pattern.startswith("!(")
    texts = _translated(pattern[1:] if inverted else pattern, pattern)
    whole = tuple(_engine(text, 0, pattern) for text in texts)
    part = tuple(_engine(_unanchored(text), 0, pattern) for text in texts)
    return Compiled(pattern, Shape.GLOB, whole, part, inverted)


def _translated(body: str, pattern: str) -> list[str]:
    # Keys behind `scheme://` are names, not directories: a star crosses the slash (RU275).
    try:
        if "://" in body:
            return fnmatch.translate(body, flags=_SCHEME_FLAGS, limit=BRACE_EXPANSIONS_MAX)[0]
        return glob.translate(body, flags=_PATH_FLAGS, limit=BRACE_EXPANSIONS_MAX)[0]
    except (ValueError, RecursionError, PatternLimitException) as error:
        raise PatternError("invalid_glob", pattern, f"The glob cannot be used: {error}") from None


def _unanchored(text: str) -> str:
    return text.removeprefix("^").removesuffix("$")


def _engine(text: str, flags: int, pattern: str) -> regex.Pattern[str]:
    try:
        return regex.compile(text, flags | regex.VERSION0, cache_pattern=False)
    except (regex.error, RecursionError, OverflowError, ValueError, MemoryError) as error:
        raise PatternError("invalid_regex", pattern, f"The regex does not compile: {error}") from None

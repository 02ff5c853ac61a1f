r"""Patterns made ready to run, kept in a bounded cache.

Globs become regular expressions too, so that one rule holds for all: one engine, `regex`, and one
deadline of half a second for each call. A pattern comes from a model and may be hostile.

RE2 as a first engine was measured and left out. It answers `/(a+)+$/` where this engine gives up, but
it has no deadline and needs none only for small patterns: `/[a-z]{1,50}/` written forty times takes
30 us for each character, so a megabyte takes half a minute. It also refuses look-around and
references back, and reads `\d` and `\w` in another way, so that what a regex means would hang on
which engine took it.

The deadline does not run while the engine compiles, so the size of what it compiles is bounded here:
by characters, and by what counted repeats unroll to.
"""

from __future__ import annotations

from functools import lru_cache

import regex
from msgspec import Struct

from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.globs import is_inverted, regexes_of
from turnwright_core.patterns.shapes import Shape, shape_of, split_regex

# The engine prepares long literal runs in cubic time and outside its deadline: 2,000 equal characters
# take seconds, 500 some 60 ms.
PATTERN_CHARS_MAX = 500
# A unit takes about a microsecond to compile.
UNROLLED_MAX = 100_000
PATTERN_CACHE_MAX = 512
_FLAGS = {"i": regex.IGNORECASE, "m": regex.MULTILINE, "s": regex.DOTALL, "v": regex.VERSION1}
_PIECE = regex.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*+\]?|\{(?P<low>\d++)?(?:,\d*+)?\}|.", regex.DOTALL)
_NAMED_REFERENCE = regex.compile(r"(?<!\\)((?:\\\\)*+)\\k<(\w+)>")
_CODE_POINT = regex.compile(r"(?<!\\)((?:\\\\)*+)\\u\{([0-9A-Fa-f]{1,6})\}")


class CompiledPattern(Struct, frozen=True):
    """A pattern that runs: `whole` are tried as full matches, `part` as substrings; other shapes have none.

    `inverted` turns a glob's verdict around (`!*.js`); `every` is the `g` flag of a regex.
    """

    source: str
    shape: Shape
    whole: tuple[regex.Pattern[str], ...] = ()
    part: tuple[regex.Pattern[str], ...] = ()
    inverted: bool = False
    every: bool = True


@lru_cache(maxsize=PATTERN_CACHE_MAX)
def compiled(pattern: str) -> CompiledPattern:
    """Return `pattern` compiled. Raises PatternError; failures are not cached."""
    shape = shape_of(pattern)
    if shape is Shape.LITERAL:
        return CompiledPattern(pattern, shape)
    if len(pattern) > PATTERN_CHARS_MAX:
        raise PatternError("too_long", pattern, f"A pattern has at most {PATTERN_CHARS_MAX} characters")
    match shape:
        case Shape.REGEX:
            return _regex(pattern)
        case Shape.GLOB:
            return _glob(pattern)
        case _:
            return CompiledPattern(pattern, shape)


def compiled_regex(text: str, flags: int = 0, *, pattern: str | None = None) -> regex.Pattern[str]:
    """Return a regex without slashes, compiled. Raises PatternError about `pattern`, or about the text itself."""
    pattern = pattern or text
    if len(text) > PATTERN_CHARS_MAX:
        raise PatternError("too_long", pattern, f"A regex has at most {PATTERN_CHARS_MAX} characters")
    if _unrolled(text) > UNROLLED_MAX:
        raise PatternError("too_large", pattern, "The counted repeats of the regex multiply too high; lower them")
    return _engine(text, flags, pattern)


def _regex(pattern: str) -> CompiledPattern:
    inner, flags = split_regex(pattern) or (pattern, "")
    inner = _NAMED_REFERENCE.sub(r"\1(?P=\2)", inner)
    if "u" in flags or "v" in flags:
        inner = _CODE_POINT.sub(lambda found: f"{found[1]}\\U{int(found[2], 16):08X}", inner)
    bits = sum(_FLAGS.get(flag, 0) for flag in set(flags))
    whole = compiled_regex(inner, bits, pattern=pattern)
    # Sticky: where the search begins, and where the match before it ended.
    part = _engine(rf"\G(?:{inner})", bits, pattern) if "y" in flags else whole
    return CompiledPattern(pattern, Shape.REGEX, (whole,), (part,), every="g" in flags)


def _glob(pattern: str) -> CompiledPattern:
    inverted = is_inverted(pattern)
    whole, part = regexes_of(pattern[1:] if inverted else pattern, pattern)
    return CompiledPattern(
        pattern,
        Shape.GLOB,
        tuple(_engine(one, 0, pattern) for one in whole),
        tuple(_engine(one, 0, pattern) for one in part),
        inverted,
    )


def _unrolled(text: str) -> int:
    """How many units the engine makes of a regex: it writes each group out as often as it must occur."""
    sizes = [0]  # of the groups that are open, from the outermost
    last = 0  # of the unit before, which a count would repeat
    for found in _PIECE.finditer(text):
        piece = found[0]
        if piece == "(":
            sizes.append(0)
            last = 0
            continue
        if piece == ")" and len(sizes) > 1:
            last = sizes.pop() + 1
        elif found["low"]:
            last *= max(int(found["low"]) - 1, 0)
        else:
            last = 1
        sizes[-1] += last
    return sum(sizes)


def _engine(text: str, flags: int, pattern: str) -> regex.Pattern[str]:
    version = 0 if flags & regex.VERSION1 else regex.VERSION0
    try:
        return regex.compile(text, flags | version, cache_pattern=False)
    except (regex.error, RecursionError, OverflowError, ValueError, MemoryError) as error:
        raise PatternError("invalid_regex", pattern, f"The regex does not compile: {error}") from None

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

import re
from functools import lru_cache

import regex
from msgspec import Struct
from wcmatch import fnmatch, glob

from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.shapes import Shape, shape_of, split_regex

# Globs as regular expressions, written by wcmatch, with the habits of picomatch.
#
# | habit | example |
# |---|---|
# | `*` and `?` stop at `/`, `**` does not; behind `scheme://` all cross it (RU275) | `known://*` fits `known://a/b` |
# | a name that begins with a dot needs a dot in the pattern (not behind a scheme) | `*` does not fit `.env` |
# | `dir/**` fits `dir` too | `src/**` fits `src` |
# | a leading `./` means nothing | `./*.js` fits `a.js` |
# | a plain class also means its own text | `app/[id]/*` fits `app/[id]/page.tsx` |
# | `!` before a glob turns it around | `!*.js` fits `a.ts` |
# | case counts, `\` takes the meaning off the next character | `a\*` fits `a*` |
#
# Extended groups mean what they mean in bash: `!(a).js` fits `ab.js`, where picomatch looks at the
# beginning only.

BRACE_EXPANSIONS_MAX = 200
_PATH_FLAGS = glob.GLOBSTAR | glob.EXTGLOB | glob.BRACE | glob.CASE | glob.FORCEUNIX
_SCHEME_FLAGS = fnmatch.EXTMATCH | fnmatch.BRACE | fnmatch.CASE | fnmatch.FORCEUNIX | fnmatch.DOTMATCH
_WHOLE_FOLDER = re.compile(r"((?:.*/)?[^*/]+)/\*\*", re.DOTALL)
_PLAIN_CLASS = re.compile(r"(?<!\\)\[([\w.]+)\]")


def is_inverted(pattern: str) -> bool:
    """Return whether a glob fits what its rest does not."""
    return pattern.startswith("!") and not pattern.startswith("!(")


def regexes_of(body: str, pattern: str) -> tuple[list[str], list[str]]:
    """Return the regexes of a glob without its inversion: for whole strings, and for parts of them.

    Raises PatternError about `pattern`.
    """
    whole = [regex for variant in _variants(body) for regex in _translated(variant, pattern)]
    part = [regex.removeprefix("^").removesuffix("$") for regex in _translated(body, pattern)]
    return list(dict.fromkeys(whole)), part


def _variants(body: str) -> list[str]:
    variants = [body]
    if body.startswith("./"):
        variants.append(body.removeprefix("./"))
    if "://" not in body:
        variants += [found[1] for variant in variants if (found := _WHOLE_FOLDER.fullmatch(variant))]
    if "!(" not in body:
        # Inside of a negated group the own text of a class would be one more thing to refuse, not to take.
        variants += [_PLAIN_CLASS.sub(r"\\[\1\\]", variant) for variant in variants]
    return list(dict.fromkeys(variants))


def _translated(body: str, pattern: str) -> list[str]:
    # Keys behind `scheme://` are names, not directories: a star crosses the slash (RU275).
    try:
        if "://" in body:
            return list(fnmatch.translate(body, flags=_SCHEME_FLAGS, limit=BRACE_EXPANSIONS_MAX)[0])
        return list(glob.translate(body, flags=_PATH_FLAGS, limit=BRACE_EXPANSIONS_MAX)[0])
    except Exception as error:  # noqa: BLE001 - wcmatch exports no name of its error for too many braces
        raise PatternError("invalid_glob", pattern, f"The glob cannot be used: {error}") from None


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

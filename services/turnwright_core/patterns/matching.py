"""Match, search and replace, over whatever kind of pattern it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from turnwright_core.patterns.bounds import PATTERN_TIMEOUT_S, Deadline, check_length, timeout_error
from turnwright_core.patterns.replacing import Replacement, replace_region
from turnwright_core.patterns.selection import NO_DOCUMENT, Selection
from turnwright_core.patterns.shapes import Shape

if TYPE_CHECKING:
    import regex

    from turnwright_core.patterns.compiled import CompiledPattern


def match(pattern: str, string: str | None) -> bool:
    """Return whether the whole of `string` fits `pattern`; None fits nothing.

    Anything but a regex also fits a string equal to itself, so that paths with brackets stay reachable
    by name. An xpath or jsonpath fits a document in which it selects something, and no other text.
    Raises PatternError.

    Source: RU273 (full string, for regexes too).
    """
    if string is None:
        return False
    ready = _compiled(pattern)
    if ready.shape is not Shape.REGEX and pattern == string:
        return True
    if ready.shape in (Shape.JSONPATH, Shape.XPATH):
        return _selection(ready, string).first is not None
    if ready.shape is Shape.GLOB and not string:
        return False
    deadline = Deadline(pattern)
    found = any(deadline.bound(partial(_fullmatch, one, string)) is not None for one in ready.whole)
    return found is not ready.inverted


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return `match` of one pattern, for many strings: what can be known of the pattern is looked up once.

    The deadline is that of each string by itself. Raises PatternError, and so does each call.
    """
    ready = _compiled(pattern)
    if ready.shape not in (Shape.GLOB, Shape.REGEX):
        return partial(match, pattern)
    is_glob = ready.shape is Shape.GLOB

    def matches(string: str) -> bool:
        if is_glob and (not string or string == pattern):
            return bool(string)
        try:
            found = any(
                # Other threads go on meanwhile.
                one.fullmatch(string, timeout=PATTERN_TIMEOUT_S, concurrent=True) is not None
                for one in ready.whole
            )
        except TimeoutError:
            raise timeout_error(pattern) from None
        return found is not ready.inverted

    return matches


def search(pattern: str, string: str | None) -> bool:
    """Return whether some part of `string` fits `pattern`. Raises PatternError. Source: RU273."""
    if string is None:
        return False
    if _compiled(pattern).inverted:
        return find(pattern[1:], string) is None
    return find(pattern, string) is not None


def find(pattern: str, string: str) -> str | None:
    """Return the first part of `string` that fits `pattern`, or None. Raises PatternError.

    For an xpath or jsonpath it is the text of the first thing selected. In a text that is no document
    they are looked for as they are written: `//TODO` is an xpath by shape, and a comment in code.
    """
    ready = _compiled(pattern)
    deadline = Deadline(pattern)
    for one in ready.part:
        found = deadline.bound(partial(_searched, one, string))
        if found is not None:
            return str(found[0])
    selection = _selection(ready, string)
    if selection.document:
        return selection.first
    return pattern if pattern and pattern in string else None


def replace(pattern: str, replacement: str, string: str) -> str:
    """Return `string` with what fits `pattern` replaced.

    | kind | what is replaced |
    |---|---|
    | literal | every occurrence; if there is none, the one region that differs in whitespace only |
    | glob | every part that fits |
    | regex | the first match, every one with the `g` flag; `$1`, `$<name>`, `$&`, `$$` refer to it |
    | xpath, jsonpath | every text or value selected, in the document's own escapes |

    A string without a fit is returned as it is, and so is one in which a region fits several places.
    Except for regexes `$` and backslashes mean themselves. Raises PatternError, also (`unsupported`) when
    a path selects something that cannot be replaced without touching bytes beside it.
    """
    ready = _compiled(pattern)
    match ready.shape:
        case Shape.LITERAL:
            return _literally(pattern, replacement, string)
        case Shape.JSONPATH | Shape.XPATH:
            from turnwright_core.patterns import documents  # noqa: PLC0415 - most processes read no document

            replaced = documents.replace(ready.shape, pattern, replacement, string)
            return string.replace(pattern, replacement) if replaced is None else replaced
        case _:
            deadline = Deadline(pattern)
            for one in ready.part:
                string = deadline.bound(partial(_replaced, ready, one, replacement, string))
            return string


def _compiled(pattern: str) -> CompiledPattern:
    # The engines of globs and regexes are loaded with the first pattern: many processes match none.
    from turnwright_core.patterns.compiled import compiled  # noqa: PLC0415

    return compiled(pattern)


def _literally(pattern: str, replacement: str, string: str) -> str:
    if not pattern:
        return string
    if count := string.count(pattern):
        check_length(pattern, len(string) + count * (len(replacement) - len(pattern)))
        return string.replace(pattern, replacement)
    region = replace_region(string, pattern, replacement)
    return region.text if isinstance(region, Replacement) else string


def _selection(ready: CompiledPattern, string: str) -> Selection:
    if ready.shape not in (Shape.JSONPATH, Shape.XPATH):
        return NO_DOCUMENT
    from turnwright_core.patterns import documents  # noqa: PLC0415 - as above

    return documents.select(ready.shape, ready.source, string)


def _fullmatch(one: regex.Pattern[str], string: str, limit_s: float) -> regex.Match[str] | None:
    return one.fullmatch(string, timeout=limit_s)


def _searched(one: regex.Pattern[str], string: str, limit_s: float) -> regex.Match[str] | None:
    return one.search(string, timeout=limit_s)


def _replaced(ready: CompiledPattern, one: regex.Pattern[str], replacement: str, string: str, limit_s: float) -> str:
    from turnwright_core.patterns.template import Template  # noqa: PLC0415 - as above

    template = Template(ready.source, replacement, len(string), literal=ready.shape is not Shape.REGEX)
    return str(one.sub(template.fill, string, count=0 if ready.every else 1, timeout=limit_s))

r"""What kind of pattern a text is, decided by its shape alone.

| shape | kind |
|---|---|
| a whole path that begins with `//` or `(//`; one with a single `/` that no file path looks like | xpath |
| `/inner/flags`, flags of JavaScript, and `inner` does not read as a path | regex |
| `$` and segments: `$.name`, `$..name`, `$[0]`, `$.items[?@.id == 3]` | jsonpath |
| holds `*`, `?`, a non-empty `[...]`, `{a,b}`, `{1..9}` or `!(...)` | glob |
| anything else | literal |

A path such as `/srv/app/` has the outer shape of a regex. It is one only if its inner slashes are
escaped or it holds a character that globs do not use (`^ $ + ( ) | \\`), because models write
absolute paths far more often than regexes with bare slashes. For the same reason `/root/item` is a
literal, and an xpath only where a step shows it: `@`, an axis such as `child::`, `text()`, or a
predicate that counts, compares or calls (`[1]`, `[price>9]`, `[last()]`). A class of other characters
(`/srv/[a-z]`, `/app/[id]`) is one of a glob, and `/v[12]/i` is a regex.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import cache

_REGEX_SHAPE = re.compile(r"/(?P<inner>.+)/(?P<flags>[dgimsuvy]*)\Z", re.DOTALL)
_BARE_SLASH = re.compile(r"(?<!\\)/")
_REGEX_ONLY = re.compile(r"[\^$+()|\\]")
# Counted, so that a long text of openers costs linear time.
_GLOB_SHAPE = r"""
      \* | \?
    | \[ [^\]/]{1,200}+ \]        # a class needs a member: `:x[]` is text
    | \{ [^{},]{0,200}+,[^{}]{0,200}+ \} # a brace list needs a comma
    | \{ -?\w{1,20}+ \.\. -?\w{1,20}+ (?: \.\. -?\d{1,20}+ )? \}
    | [!@+] \( [^()]{0,200}+ \) # extended groups
    """

_AXIS = (
    r"(?:ancestor(?:-or-self)?|attribute|child|descendant(?:-or-self)?|following(?:-sibling)?"
    r"|namespace|parent|preceding(?:-sibling)?|self)::"
)
_NODE_TYPE = r"(?:comment|node|processing-instruction|text)\([^()\n]{0,100}\)"
_NAME = r"[^\W\d][\w.-]*+(?>(?::(?!:)(?:\*|[^\W\d][\w.-]*+))?)"
_QUOTED = r"""'[^'\n]*+'|"[^"\n]*+\""""


def _bracketed(depth: int) -> str:
    """A bracket with its quotes and with brackets inside, so deep; deeper ones are no pattern."""
    inner = rf"|{_bracketed(depth - 1)}" if depth else ""
    return rf"""\[(?>(?:[^\[\]'"\n]++|{_QUOTED}{inner})+)\]"""


_BRACKETS = _bracketed(3)
_STEP = rf"(?:\.\.?+|(?>(?:@|{_AXIS})?)(?:{_NODE_TYPE}|\*|{_NAME}))(?>(?:{_BRACKETS})*)"
_STEPS = rf"{_STEP}(?>(?:[ ]?//?[ ]?{_STEP})*)"
_XPATH_PART = rf"(?:\.?//{_STEPS}|/{_STEPS}|\(\.?//?{_STEPS}\)(?>(?:{_BRACKETS})*)(?>(?://?{_STEPS})?))"
_XPATH_SHAPE = rf"{_XPATH_PART}(?>(?:[ ]?\|[ ]?{_XPATH_PART})*)"
_COMPARES = r"""\[[^\[\]=<>]{0,200}[\w)'".*]\s?(?:!=|[<>]=?|=)\s?[\w('"./@-]"""
_CALLS = r"\[[^\[\]()]{0,200}(?<![^\W\d])[^\W\d][\w-]{0,40}\("
_JOINS = r"\[[^\[\]]{0,200}\s(?:and|or|div|mod)\s"
_XPATH_MARK = rf"\A\(?\.?//|[/\[]@|/{_AXIS}|/{_NODE_TYPE}|{_COMPARES}|{_CALLS}|{_JOINS}"
_XPATH_COUNT = r"\[\s?\d{1,9}\s?\]"

_SELECTOR = rf"(?:{_QUOTED}|\*|-?\d*+(?:\s?:\s?-?\d*+){{0,2}})"
_JSON_BRACKETS = rf"(?:(?=\[\s?\?){_BRACKETS}|\[\s?{_SELECTOR}(?>(?:\s?,\s?{_SELECTOR})*)\s?\])"
_JSONPATH_SHAPE = rf"\$(?>(?:\.\.?+(?:\*|[^\W\d][\w-]*+)|(?>(?:\.\.)?){_JSON_BRACKETS})+)"


@cache
def _compiled(pattern: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """Compiled at its first use: these take a fortieth of what a process needs to start, and few ever ask."""
    return re.compile(pattern, flags)


class Shape(Enum):
    """The kinds of pattern. Source: RU274."""

    GLOB = "glob"
    JSONPATH = "jsonpath"
    LITERAL = "literal"
    REGEX = "regex"
    XPATH = "xpath"


def shape_of(pattern: str) -> Shape:
    """Return the kind of `pattern` by its syntactic shape. Never raises; linear."""
    # A path selects in a document before it is a regex or a glob: `//a[@b='c*']` would be those too.
    is_path = _compiled(_XPATH_SHAPE).fullmatch(pattern) is not None
    if is_path and _compiled(_XPATH_MARK).search(pattern):
        return Shape.XPATH
    if split_regex(pattern) is not None:
        return Shape.REGEX
    if is_path and _compiled(_XPATH_COUNT).search(pattern):
        return Shape.XPATH
    if _compiled(_JSONPATH_SHAPE).fullmatch(pattern):
        return Shape.JSONPATH
    if _compiled(_GLOB_SHAPE, re.VERBOSE).search(pattern):
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

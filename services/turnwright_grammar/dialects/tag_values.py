"""The end of an argument's value in tags: `<parameter=path>a</parameter>`.

A value is opaque: it may hold code, other tags, even whole calls. So its close counts only where
another argument or the end of the call follows, and after as many closes as the value opens itself.
A close that was forgotten is found again where the next argument, the next call or the end of this
one begins.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from turnwright_grammar.dialects.payloads import SPACE, skip_blanks
from turnwright_grammar.scanner import TextScanner

PARAMETER = r"(?:parameter|param|argument|arg)"
CALL_END = rf"</{SPACE}(?:tool_?calls?|function_?calls?|tool)>"
CALL_BEGIN = rf"(?:<{SPACE}(?:function|invoke)(?:=|\s++name\s*+=)|<{SPACE}tool_call>)"
_OPENING = re.compile(rf"<{SPACE}{PARAMETER}(?:=|\s++name\s*+=)")
_CLOSING = re.compile(rf"</{SPACE}{PARAMETER}>")
_AFTER_VALUE = re.compile(
    rf"\s*+(?:<{SPACE}{PARAMETER}(?:name)?\b|</{SPACE}(?:function|invoke|tool|function_call|action)>"
    rf"|{CALL_END}|{CALL_BEGIN}|\Z)"
)
_AFTER_CALL = re.compile(rf"\s*+(?:{CALL_END}|{CALL_BEGIN}|\Z)")
_NEXT = re.compile(
    rf"\n\s*+(?:<{SPACE}{PARAMETER}(?:=|\s++name\s*+=)\s*+[\"']?(?P<name>[^\"'<>=\s/]*+)[^<>\n]*+>|{CALL_BEGIN})"
)
# Tags inside one value that are considered as its end.
_TAGS_TRIED_MAX = 100
_CDATA_START, _CDATA_END = "<![CDATA[", "]]>"


def argument_value(
    scanner: TextScanner, start: int, ending: re.Pattern[str], given: Collection[str] = ()
) -> tuple[str | None, int, bool]:
    """The value at `start`, where to continue, and whether its end was guessed.

    The value is None if it is truncated. `ending` matches the end of the call. Arguments in `given`, this one included,
    do not occur again: what looks like one is part of the value.
    """
    text = scanner.text
    inside = _after_cdata(text, start)
    first = scanner.search(_CLOSING, inside)
    call_end = scanner.search(ending, inside)
    if call_end and not (first and first.start() < call_end.start()) and _AFTER_CALL.match(text, call_end.end()):
        return _stripped(text[start : call_end.start()]), call_end.start(), True
    if first is None:
        return None, len(text), True
    closing = _balanced(scanner, inside)
    if closing is None and (missing := _next_begins(scanner, inside, first, given)) is not None:
        return _stripped(text[start:missing]), missing, True
    last = closing or _followed(scanner, first)
    return _stripped(text[start : last.start()]), last.end(), closing is None


def _balanced(scanner: TextScanner, position: int) -> re.Match[str] | None:
    """The close that leaves no tag open inside the value and is followed by what may follow it."""
    depth, start = 1, position
    opening, closing = scanner.search(_OPENING, position), scanner.search(_CLOSING, position)
    for _ in range(_TAGS_TRIED_MAX if scanner.can_spend(start) else 1):
        if closing is None:
            break
        position = closing.end()
        if opening and opening.start() < closing.start():
            depth += 1
            opening = scanner.search(_OPENING, opening.end())
            continue
        if depth == 1 and _AFTER_VALUE.match(scanner.text, closing.end()):
            return closing
        depth = max(depth - 1, 1)
        closing = scanner.search(_CLOSING, closing.end())
    scanner.spend(position - start)
    return None


def _next_begins(scanner: TextScanner, position: int, first: re.Match[str], given: Collection[str]) -> int | None:
    following = scanner.search(_NEXT, position)
    while following and following["name"] in given and following.end() <= first.start():
        following = scanner.search(_NEXT, following.end())
    begins = following is not None and following.end() <= first.start()
    return following.start() if following and begins and _AFTER_VALUE.match(scanner.text, first.end()) else None


def _followed(scanner: TextScanner, first: re.Match[str]) -> re.Match[str]:
    """The first close that is followed by what may follow it, or else the first."""
    closing: re.Match[str] | None = first
    while closing and not _AFTER_VALUE.match(scanner.text, closing.end()) and scanner.can_spend(first.end()):
        closing = scanner.search(_CLOSING, closing.end())
    scanner.spend((closing.end() if closing else len(scanner.text)) - first.end())
    return closing or first


def _after_cdata(text: str, start: int) -> int:
    opening = skip_blanks(text, start)
    if not text.startswith(_CDATA_START, opening):
        return start
    return max(start, text.find(_CDATA_END, opening))


def _stripped(raw: str) -> str:
    """The text without a CDATA mark, or without one line break on either side."""
    stripped = raw.strip()
    if stripped.startswith(_CDATA_START) and stripped.endswith(_CDATA_END):
        return stripped[len(_CDATA_START) : -len(_CDATA_END)]
    if raw.startswith("\r\n"):
        return raw.removeprefix("\r\n").removesuffix("\n").removesuffix("\r")
    return raw.removeprefix("\n").removesuffix("\n")

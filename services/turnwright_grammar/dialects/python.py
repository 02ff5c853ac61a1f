"""Calls written as Python: `get(path="a")`, `[get(path="a"), sh(command="ls")]`, one on each line.

Strings are Python's, triple and raw ones too; every other value is read as tolerantly as JSON.
"""

from __future__ import annotations

import re

from turnwright_grammar.dialects.payloads import ATTEMPT_CHARS, LENIENT_COST, NAME, Payload, skip_blanks
from turnwright_grammar.scanner import TextScanner
from turnwright_grammar.values.lenient import read_lenient
from turnwright_grammar.values.strict import ReadValue, Value

PYTHON_CALLS_MAX = 200
_NAME = re.compile(rf"\s*+(?P<print>print\((?={NAME}\())?(?P<name>{NAME})\(")
_BARE_NAME = re.compile(rf"[ \t]*+(?:print\((?={NAME}\())?{NAME}\(")
_KEYWORD = re.compile(r"(?P<name>[A-Za-z_]\w*+)\s*+=\s*+(?!=)")
_STRING = re.compile(
    r"""[rRbBuU]{0,2}(?:
        \"{3}(?>(?:[^"\\]|\\.|"(?!""))*)\"{3} | '{3}(?>(?:[^'\\]|\\.|'(?!''))*)'{3}
      | "(?>(?:[^"\\]|\\.)*)" | '(?>(?:[^'\\]|\\.)*)'
    )(?=\s*+[,)\]}])""",
    re.VERBOSE | re.DOTALL,
)
# `07` is not valid in Python; it means 7.
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}(?=\s*+[,)])")
_WORD = re.compile(r"(?:True|False|None|true|false|null)(?=\s*+[,)])")
_WORDS: dict[str, Value] = {"true": True, "false": False, "none": None, "null": None}
_QUOTED = re.compile(r"[rRbBuU]{0,2}[\"']")
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "0": "\0", "\n": ""}
_ESCAPED |= {"\\": "\\", "'": "'", '"': '"'}
_CODE_POINT_MAX = 0x10FFFF
# Half a call's name, or nothing yet.
_NAME_CUT = re.compile(r"[\s;]*+(?:[A-Za-z_][\w.]*+(?:\([\w.]*+)?)?\Z")
# Half an argument's name, or nothing yet.
_CUT_AT = re.compile(r"(?:[A-Za-z_]\w*+\s*+)?\Z")
_LINE = re.compile(r"[ \t;]*+\r?\n\s*+|[ \t]*+;\s*+")


def python_calls(scanner: TextScanner, start: int, *, positional: bool = False) -> Payload | None:
    """The calls of `[a(x=1), b()]` or `a(x=1)` at `start`, or None. Never raises.

    Without brackets the next lines may have more calls. `positional` also accepts calls with one positional argument,
    `get("a")`: only after a token, since ordinary code is full of them.
    """
    if scanner.text.startswith("[", start):
        return _in_brackets(scanner, start + 1, positional=positional)
    payload = _call(scanner, start, positional=positional)
    while payload and not payload.cut and len(payload.calls) < PYTHON_CALLS_MAX:
        line = _LINE.match(scanner.text, payload.end)
        if line is None or _BARE_NAME.match(scanner.text, line.end()) is None:
            payload.cut = not scanner.final and _NAME_CUT.match(scanner.text, payload.end) is not None
            break
        following = _call(scanner, line.end(), positional=positional)
        if following is None:
            break
        payload.whole = 0 if payload.guessed else len(payload.calls)
        payload.calls.extend(following.calls)
        payload.end, payload.cut = following.end, following.cut
        payload.guessed = payload.guessed or following.guessed
    return payload


def begins_python(text: str, start: int) -> bool:
    return _NAME.match(text, start) is not None


def _in_brackets(scanner: TextScanner, start: int, *, positional: bool) -> Payload | None:
    text = scanner.text
    payload = Payload(start)
    while len(payload.calls) < PYTHON_CALLS_MAX:
        position = skip_blanks(text, payload.end)
        if payload.calls and text.startswith("]", position):
            payload.end = position + 1
            return payload
        one = _call(scanner, position, positional=positional)
        if one is None:
            payload.cut = _NAME_CUT.match(text, position) is not None
            return payload if payload.calls and payload.cut else None
        payload.whole = 0 if payload.guessed else len(payload.calls)
        payload.calls.extend(one.calls)
        payload.end, payload.cut = one.end, one.cut
        payload.guessed = payload.guessed or one.guessed
        if one.cut:
            return payload
    return payload


def _call(scanner: TextScanner, start: int, *, positional: bool) -> Payload | None:
    text = scanner.text
    found = _NAME.match(text, start)
    if found is None:
        return None
    arguments: Value = {}
    position = skip_blanks(text, found.end())
    if _CUT_AT.match(text, position):
        return Payload(len(text), [(found["name"], arguments)], cut=True)
    if positional and not text.startswith(")", position) and _KEYWORD.match(text, position) is None:
        read = _value(scanner, position)
        if read is None or not isinstance(read.value, str | dict):
            return None
        arguments, position, guessed = read.value, read.end, read.repaired
    else:
        named = _arguments(scanner, position)
        if named is None:
            return None
        arguments, position, guessed = named
    payload = _closed(text, found, arguments, position)
    if payload is not None:
        payload.guessed = guessed
    return payload


def _closed(text: str, found: re.Match[str], arguments: Value, position: int) -> Payload | None:
    position = skip_blanks(text, position)
    for _ in range(2 if found["print"] else 1):
        if position >= len(text):
            return Payload(len(text), [(found["name"], arguments)], cut=True)
        if text[position] != ")":
            return None
        position += 1
    return Payload(position, [(found["name"], arguments)])


def _arguments(scanner: TextScanner, position: int) -> tuple[dict[str, Value], int, bool] | None:
    """The named arguments, their end (at a `)`, or the end of the text), and whether any was guessed."""
    text = scanner.text
    arguments: dict[str, Value] = {}
    guessed = False
    while position < len(text) and text[position] != ")":
        keyword = _KEYWORD.match(text, position)
        if keyword is None:
            return (arguments, len(text), guessed) if _CUT_AT.match(text, position) else None
        read = _value(scanner, keyword.end())
        if read is None:
            return (arguments, len(text), guessed) if keyword.end() >= len(text) else None
        arguments[keyword["name"]] = read.value
        guessed = guessed or read.repaired
        position = len(text) if read.cut else skip_blanks(text, read.end)
    return arguments, position, guessed


def _value(scanner: TextScanner, position: int) -> ReadValue | None:
    if _QUOTED.match(scanner.text, position) and (string := _STRING.match(scanner.text, position)):
        return ReadValue(_decoded(string[0]), string.end())
    if integer := _INTEGER.match(scanner.text, position):
        return ReadValue(int(integer[0]), integer.end())
    if word := _WORD.match(scanner.text, position):
        return ReadValue(_WORDS[word[0].lower()], word.end())
    if not scanner.can_spend(position):
        return None
    scanner.spend(ATTEMPT_CHARS)
    read = read_lenient(scanner.text, position)
    if read is None or read.end <= position:
        return None
    scanner.spend(LENIENT_COST * (read.end - position) + read.looked_chars)
    return read


def _decoded(literal: str) -> str:
    """Decode a string literal; unknown escapes stay."""
    quoted = literal.lstrip("rRbBuU")
    marks = 3 if len(quoted) >= 6 and quoted[:3] in ('"""', "'''") else 1
    inside = quoted[marks:-marks]
    raw = "r" in literal[: len(literal) - len(quoted)].lower()
    return inside if raw or "\\" not in inside else _ESCAPE.sub(_unescaped, inside)


def _unescaped(found: re.Match[str]) -> str:
    escaped = found[1]
    if escaped[0] in "xuU" and len(escaped) > 1:
        code = int(escaped[1:], 16)
        return chr(code) if code <= _CODE_POINT_MAX else found[0]
    return _ESCAPED.get(escaped, found[0])

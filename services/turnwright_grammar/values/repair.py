"""JSON repair of whole texts, perhaps with several values, in prose or in a fence."""

from __future__ import annotations

import json
import re
import string

from turnwright_grammar.values.lenient import read_lenient
from turnwright_grammar.values.quotes import BLANKS, MEMBER_START, QUOTES
from turnwright_grammar.values.strict import STRICT, ReadValue, Value, read_strict

VALUES_MAX = 100
"""Values read from one text; a reply has at most 99 commands."""

_OPENER = re.compile(r"[\[{]")
_FENCE = re.compile(r"```[\w+-]*[ \t]*\n?")
_FENCES_TRIED_MAX = 20
_PROSE_BRACKET = re.compile(r"\[[A-Za-z][\w .:/-]{0,80}\](?!\s*(?:\Z|[,\]}]))")
_PROSE_BRACKETS_MAX = 100
_TUPLE = re.compile(r"\(\s*[\"'(\d]")
_GOES_ON = re.compile(r"[\s}]*,\s*[\"'][^\"'\n]{0,200}[\"']\s*:")
_BETWEEN = re.compile(r"(?:[\s,;\ufeff}\])]|```[\w+-]*|//[^\n]*|/\*[\s\S]*?(?:\*/|\Z))*")
_STANDARD = json.JSONDecoder()
_KEY_WITH_NEWLINE = re.compile(r"\n\"\s*:")
_NUMBER = re.compile(r"[+-]?\.?\d[\d_.]*(?:[eE][+-]?\d+)?\s*\Z")
_OBJECTS_TRIED_MAX = 50
_NO_VALUE = QUOTES + string.whitespace


def repair_json(text: str) -> Value:
    """The value of a JSON text that may be broken; `""` if it has none.

    Valid JSON is read as by the json module. Prose and code fences around the value are skipped. Of several values the
    empty ones are left out, and more than one is a list. Never raises.
    """
    decoder = _STANDARD if '\n"' in text and _KEY_WITH_NEWLINE.search(text) else STRICT
    try:
        return decoder.decode(text)  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        pass
    if not text.strip(_NO_VALUE):
        return ""
    values = [read.value for read in read_all(text)]
    full = [value for value in values if value not in ({}, [], "")] or values[:1]
    if len(full) > 1:
        return full
    return full[0] if full else ""


def read_all(text: str) -> tuple[ReadValue, ...]:
    """The values of a text, VALUES_MAX at most. Never raises.

    After the first one, a value counts after nothing but blanks, commas or fences, or if it is a complete object:
    brackets in prose are no values.
    """
    found: list[ReadValue] = []
    start = _first(text)
    while start is not None and len(found) < VALUES_MAX:
        read = _read_at(text, start)
        if read is None:
            break
        found.append(read)
        start = _next(text, read.end)
    return tuple(found)


def _read_at(text: str, start: int) -> ReadValue | None:
    if _starts_member(text, start):
        # `"path": "a", "line": 1`: an object without braces.
        read = read_lenient("{" + text[start:] + "}", full_lookahead=True)
        return (
            ReadValue(read.value, min(start + read.end - 1, len(text)), repaired=True, cut=read.cut, over=read.over)
            if read
            else None
        )
    strict = read_strict(text[start:])
    if isinstance(strict, ReadValue):
        end = start + strict.end
        # `{"a": 1}, "b": 2}`: the object was closed too early.
        is_whole = not isinstance(strict.value, dict) or not _GOES_ON.match(text, end)
        if is_whole and not _KEY_WITH_NEWLINE.search(text, start, end):
            return ReadValue(strict.value, end)
    return read_lenient(text, start, full_lookahead=True)


def _starts_member(text: str, start: int) -> bool:
    return text[start] in QUOTES and MEMBER_START.match(text, start) is not None


def _first(text: str) -> int | None:
    """The start of the first value: a fenced one, a bracket, or the whole text if it is a scalar."""
    start = BLANKS.match(text).end()  # type: ignore[union-attr]
    char = text[start : start + 1]
    if char and char in QUOTES and not text.startswith(("```", "``"), start) and not _opens(text, start + 1):
        return start
    opener = _opener(text, start)
    if fenced := _fenced(text, start, len(text) if opener is None else opener):
        return fenced
    found = _TUPLE.search(text, start)
    if found and (opener is None or _is_tuple(text, found.start(), start, opener)):
        return found.start()
    if opener is None and _NUMBER.match(text, start):
        return start
    return opener


def _opens(text: str, position: int) -> bool:
    return text.startswith(("{", "[", "\\"), position)


def _opener(text: str, start: int) -> int | None:
    """The first bracket that is no `[note]` in prose."""
    for _ in range(_PROSE_BRACKETS_MAX):
        found = _OPENER.search(text, start)
        if found is None:
            return None
        prose = _PROSE_BRACKET.match(text, found.start())
        if prose is None or prose[0].lower() in ("[true]", "[false]", "[null]", "[none]"):
            return found.start()
        start = prose.end()
    return None


def _fenced(text: str, start: int, limit: int) -> int | None:
    for _ in range(_FENCES_TRIED_MAX):
        fence = _FENCE.search(text, start)
        if fence is None or fence.start() > limit:
            return None
        inside = BLANKS.match(text, fence.end()).end()  # type: ignore[union-attr]
        if text.startswith(("{", "[", "("), inside):
            return inside
        start = fence.end()
    return None


def _is_tuple(text: str, at: int, start: int, opener: int) -> bool:
    """Whether the parenthesis at `at` is the text's value: it begins the text and holds all brackets."""
    if at != start or opener < at:
        return False
    read = read_lenient(text, at, full_lookahead=True)
    return read is not None and opener < read.end


def _next(text: str, end: int) -> int | None:
    position = _BETWEEN.match(text, end).end()  # type: ignore[union-attr]
    if text.startswith(("{", "["), position) and not _PROSE_BRACKET.match(text, position):
        return position
    for _ in range(_OBJECTS_TRIED_MAX):
        position = text.find("{", position)
        if position < 0:
            return None
        strict = read_strict(text[position:])
        if isinstance(strict, ReadValue) and isinstance(strict.value, dict):
            return position
        position += 1
    return None

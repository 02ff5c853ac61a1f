"""Unquoted values: numbers, literals, and words whose quotes were forgotten.

Whether a word is a number or a literal is decided by the whole of it, so `1/3`, `10-20`, `1.2.3` and `57eeeeb1-450b`
stay text. So does a number that would lose digits (`007`).
"""

from __future__ import annotations

import re

from msgspec import Struct

from turnwright_grammar.values.quotes import BARE_MEMBER_START, BLANKS, MEMBER_START, QUOTES, ValuePosition
from turnwright_grammar.values.strict import Value

_LITERALS: dict[str, Value] = {
    "true": True,
    "false": False,
    "null": None,
    "none": None,
    "undefined": None,
    "NaN": float("nan"),
    "nan": float("nan"),
    "Infinity": float("inf"),
    "+Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
_LITERAL_CHARS_MAX = max(map(len, _LITERALS))
_CUT_LITERALS = ("true", "false", "null")
_SIMPLE = re.compile(
    r"(?:(?P<number>-?(?:0|[1-9]\d{0,17}))|(?P<literal>true|false|null))(?=\s*(?:[}\]]|,\s*[\"{\[\-]|,\s+\d))"
)
_NUMBER = re.compile(r"[+-]?(?:(?:0\d?|[1-9]\d*(?:_\d+)*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_CUT_NUMBER = re.compile(r"(?P<whole>-?\d+(?:\.\d+)?)(?:\.|[eE][+-]?)")
_SCALAR = re.compile(r"(?:[+-]?[\d.][\w.]*|true|false|null|none)\b[ \t]*", re.IGNORECASE)
_NUMBER_AND_VALUE = re.compile(r"(?P<number>[+-]?\.?\d[\d._]*)(?=[ \t]+(?:[+-]?\.?\d|[\"'{\[]))")
_DIGIT_GROUPS = re.compile(r",\d{1,30}(?:[.,]\d{1,30}){0,10}(?=\s*(?:,\s*[\"'}]|[}\n]|,?\s*\Z))")
_STOPS = re.compile(rf"[,;{{}}\[\]()\n{QUOTES}]|(?<=\s)(?://|/\*|\#\s)|\\[nrt](?=[\s}}\],\"'\\]|\Z)")
_QUOTE_MARKS = tuple(QUOTES)
_DELIMITERS = ("", *",]})")
_GROUP = re.compile(r"[{}\[\]()]|\"[^\"\n]{0,200}\"|'[^'\n]{0,200}'")
_GROUP_CHARS_MAX = 1_000


class UnquotedValue(Struct, frozen=True):
    """An unquoted value, the text it was read from, and where it ends."""

    value: Value
    raw: str
    end: int


class UnquotedReader:
    """Reads the unquoted values of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._no_group_before = 0

    def read(self, position: int, place: ValuePosition, closers: str) -> UnquotedValue:
        """Return the value at `position`; `closers` are those of the brackets that are open. Never raises."""
        simple = _SIMPLE.match(self._text, position)
        if simple is not None:
            raw = simple[0]
            return UnquotedValue(int(raw) if simple["number"] else _LITERALS[raw], raw, simple.end())
        if place is ValuePosition.ITEM and (number := _NUMBER_AND_VALUE.match(self._text, position)):
            return UnquotedValue(_parse_word(number["number"]), number["number"], number.end())
        end = self._end(position, place, closers)
        after = end + 1 if self._is_stray_quote(end) else end
        raw = self._text[position:end].rstrip()
        is_cut = after >= len(self._text)
        return UnquotedValue(_parse_truncated_word(raw) if is_cut else _parse_word(raw), raw, max(after, position + 1))

    def _end(self, start: int, place: ValuePosition, closers: str) -> int:
        scalar = _SCALAR.match(self._text, start)
        scalar_end = scalar.end() if scalar else -1
        position: int | None = start
        while found := _STOPS.search(self._text, position or start):
            at = found.start()
            position = self._continue_after(found[0], at, place, closers, is_scalar=at == scalar_end)
            if position is None:
                return at
        return len(self._text)

    def _continue_after(self, mark: str, at: int, place: ValuePosition, closers: str, *, is_scalar: bool) -> int | None:
        """Where the value continues after a mark in it, or None if it ends there."""
        further = at + len(mark)
        if mark in ",;":
            ends = place is not ValuePosition.MEMBER or self._comma_ends(at, is_scalar=is_scalar)
        elif mark in "}])":
            ends = place is ValuePosition.ARGUMENT or mark in closers
        elif mark in "{[(":
            ends = place is ValuePosition.ITEM and mark != "(" and self._text[at - 1].isspace()
            further = at if ends else self._group_end(at)
        elif mark == "\n":
            further = BLANKS.match(self._text, at).end()  # type: ignore[union-attr]
            ends = place is not ValuePosition.MEMBER or self._member_or_end(further)
        else:
            ends = mark not in QUOTES or self._quote_ends(at, place)
        return None if ends else further

    def _comma_ends(self, at: int, *, is_scalar: bool) -> bool:
        """Whether a comma ends a member's value, as it does not in `105,12` and `lorem, ipsum`."""
        if is_scalar:
            return _DIGIT_GROUPS.match(self._text, at) is None
        start = BLANKS.match(self._text, at + 1).end()  # type: ignore[union-attr]
        return self._member_or_end(start) or self._text[start] in ",{["

    def _member_or_end(self, start: int) -> bool:
        char = self._text[start : start + 1]
        if char == "" or char in "}]),\"'":
            return True
        return (BARE_MEMBER_START.match(self._text, start) or MEMBER_START.match(self._text, start)) is not None

    def _group_end(self, at: int) -> int:
        """Where the bracket at `at` is closed (`words{in brackets}`, `f(x, y)`), if that is near."""
        if at < self._no_group_before:
            return at + 1
        depth = 0
        for found in _GROUP.finditer(self._text, at, at + _GROUP_CHARS_MAX):
            depth += (found[0] in "{[(") - (found[0] in "}])")
            if depth == 0:
                return found.end()
        # No need to search again for the next brackets.
        self._no_group_before = at + _GROUP_CHARS_MAX
        return at + 1

    def _quote_ends(self, at: int, place: ValuePosition) -> bool:
        text = self._text
        if text[at] != '"' and text[at - 1].isalnum() and text[at + 1 : at + 2].isalnum():
            return False
        if self._is_stray_quote(at):
            return True
        return MEMBER_START.match(text, at) is not None if place is ValuePosition.MEMBER else text[at - 1].isspace()

    def _is_stray_quote(self, at: int) -> bool:
        # `abcdef", "next"`: a quote that closes nothing.
        if self._text[at : at + 1] not in _QUOTE_MARKS or self._text[at - 1].isspace():
            return False
        start = BLANKS.match(self._text, at + 1).end()  # type: ignore[union-attr]
        return self._text[start : start + 1] in _DELIMITERS


def _parse_word(raw: str) -> Value:
    if len(raw) <= _LITERAL_CHARS_MAX:
        for known in (raw, raw.lower()):
            if known in _LITERALS and not (known == "nan" and raw != "nan"):
                return _LITERALS[known]
    return _number(raw) if _NUMBER.fullmatch(raw) else raw


def _parse_truncated_word(raw: str) -> Value:
    """The value of a truncated word: `tru` is true, `1.` a number."""
    if raw:
        for literal in _CUT_LITERALS:
            if literal.startswith(raw):
                return _LITERALS[literal]
    if found := _CUT_NUMBER.fullmatch(raw):
        return _number(found["whole"])
    return "" if raw == "-" else _parse_word(raw)


def _number(raw: str) -> int | float | str:
    digits = raw.replace("_", "")
    for kind in (int, float):
        try:
            number = kind(digits)
        except ValueError:
            continue
        return number if abs(number) != float("inf") else raw
    return raw

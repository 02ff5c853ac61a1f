"""JSON values, and the strict parser of one.

Strict means what the standard decoder takes, control characters in strings and a comment before the
value included: models write both.
"""

from __future__ import annotations

import json
import re
from enum import Enum

from msgspec import Struct

Value = None | bool | int | float | str | list["Value"] | dict[str, "Value"]

STRICT = json.JSONDecoder(strict=False)
_BEFORE = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)|\#[ \t][^\n]*)*")
_AFTER_NUMBER = re.compile(r"[\s,;\]})<`\"'|&\[{]|\Z")
# What the decoder cannot read at its place, and could if the text went on.
_CUT = re.compile(
    r"""
      .?                                                  # a closer, a comma, the begin of a comment
    | u[0-9A-Fa-f]{0,4}                                   # of an escape
    | t(?:ru?)? | f(?:a(?:ls?)?)? | n(?:ul?)? | Na?       # of a literal
    | -? I(?:n(?:f(?:i(?:n(?:it?)?)?)?)?)?
    | [eE][+\-]                                           # of a number, whose first digits were read
    """,
    re.VERBOSE | re.DOTALL,
)


class NotStrict(Enum):
    """Why a text is not valid JSON: a syntax error, or perhaps only truncated."""

    BROKEN = "broken"
    CUT = "cut"


class ReadValue(Struct, frozen=True):
    """A value and its end. `cut`: it was truncated.

    `over`: text inside belongs to no member, as after an unescaped quote that ended a string too early. `looked_chars`:
    how many characters were looked at for the ends of strings, which may be far beyond its end.
    """

    value: Value
    end: int
    repaired: bool = False
    cut: bool = False
    over: bool = False
    looked_chars: int = 0


def read_strict(part: str) -> ReadValue | NotStrict:
    """The JSON value at the start of `part` (blanks skipped), or why there is none. Never raises.

    `part` should be a slice: the error of the standard decoder counts the lines before it.
    """
    try:
        value, end = STRICT.raw_decode(part, _BEFORE.match(part).end())  # type: ignore[union-attr]
    except json.JSONDecodeError as error:
        is_cut = error.msg.startswith("Unterminated") or _CUT.fullmatch(part, error.pos) is not None
        return NotStrict.CUT if is_cut else NotStrict.BROKEN
    except (ValueError, RecursionError):
        return NotStrict.BROKEN
    if isinstance(value, int | float) and not _AFTER_NUMBER.match(part, end):
        # `07`, `1/3`, `1.2.3`: JSON reads a number and leaves the rest.
        return NotStrict.CUT if part[end] in ".eE" and _CUT.fullmatch(part, end) else NotStrict.BROKEN
    return ReadValue(value, end)


def read_items(part: str) -> list[Value]:
    """The complete items of a truncated list at the start of `part`; none if it is broken. Strict. Never raises."""
    items: list[Value] = []
    position = _BEFORE.match(part).end() + 1  # type: ignore[union-attr]
    while True:
        position = _BEFORE.match(part, position).end()  # type: ignore[union-attr]
        try:
            value, position = STRICT.raw_decode(part, position)
        except (ValueError, RecursionError):
            return items if read_strict(part) is NotStrict.CUT else []
        following = _BEFORE.match(part, position).end()  # type: ignore[union-attr]
        if not part.startswith(",", following):
            # The last item may be truncated.
            return items
        items.append(value)
        position = following + 1


def compact_json(value: Value) -> str:
    """JSON without blanks. Never raises, however deep the value is nested."""
    try:
        return _to_json(value)
    except RecursionError:
        return _deep_json(value)


def _to_json(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class _Mark(str):
    """Punctuation on the stack of `_deep_json`."""

    __slots__ = ()


def _deep_json(value: Value) -> str:
    parts: list[str] = []
    pending: list[Value] = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending.append(_Mark("}"))
            for key, inner in reversed(item.items()):
                pending += [inner, _Mark(f",{_to_json(key)}:")]
            pending[-1] = _Mark("{" + str(pending[-1])[1:]) if item else _Mark("{}")
        elif isinstance(item, list):
            pending.append(_Mark("]"))
            for inner in reversed(item):
                pending += [inner, _Mark(",")]
            pending[-1] = _Mark("[") if item else _Mark("[]")
        else:
            parts.append(item if isinstance(item, _Mark) else _to_json(item))
    return "".join(parts)

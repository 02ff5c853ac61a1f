r"""Backslash escapes as JSON, JavaScript and Python have them, and as models get them wrong.

An escape that none of them knows keeps its backslash: `\d` in a pattern and `C:\path` mean what they
look like.
"""

from __future__ import annotations

import re

_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", '"': '"', "'": "'"}
_ESCAPE = re.compile(r"\\(?:u(?P<u>[0-9a-fA-F]{4})|x(?P<x>[0-9a-fA-F]{2})|U(?P<U>[0-9a-fA-F]{8})|(?P<char>[\s\S]))")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_INCOMPLETE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?|U[0-9a-fA-F]{0,7})?")
_INCOMPLETE_CHARS_MAX = 9
_QUOTE_ESCAPES = re.compile(r"\\+([\"'])")
_CODE_POINTS = 0x110000


def decode(raw: str) -> str:
    """Decode the content of a string; unknown escapes stay. Never raises, linear."""
    if "\\" not in raw:
        return raw
    return _joined(_ESCAPE.sub(_decoded, raw))


def decode_truncated(raw: str) -> str:
    """Decode the content of a truncated string; an incomplete escape is left out."""
    last = raw.rfind("\\")
    if last >= 0 and len(raw) - last <= _INCOMPLETE_CHARS_MAX and _INCOMPLETE.fullmatch(raw, last):
        before = raw[:last]
        if (len(before) - len(before.rstrip("\\"))) % 2 == 0:
            raw = before
    decoded = decode(raw)
    return decoded[:-1] if "\ud800" <= decoded[-1:] <= "\udbff" else decoded


def decode_over_escaped(raw: str) -> str:
    r"""Return what content means whose quotes were escaped unevenly (`{\\"a\": ...`): all are quotes."""
    return decode(_QUOTE_ESCAPES.sub(r"\1", raw))


def _decoded(found: re.Match[str]) -> str:
    char = found["char"]
    if char is not None:
        return _SIMPLE.get(char, found[0])
    code = int(found["u"] or found["x"] or found["U"], 16)
    return chr(code) if code < _CODE_POINTS else found[0]


def _joined(text: str) -> str:
    """Join escaped surrogate pairs."""
    return _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)

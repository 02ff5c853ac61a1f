r"""A sed search and replacement as a regex and a replacement of the pattern library.

sed has two dialects: in the basic one `\(` groups and `(` is a character, in the extended one it is the
other way round, and so for `{ } + ? |`. A command does not say which one it is in: what tells is an
escaped bracket (basic) or a group that the replacement refers to (extended); else both are tried, basic
first, because there more of the search means itself.

sed sees a line at a time, so nothing here matches across a line end but an `\n` that is written.

Source: C5.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"\\(?P<escaped>.)|\[(?P<negated>\^?)(?P<members>\]?(?>(?:\[:\w+:\]|[^\]\\\n]|\\.)*))\]|(?P<one>.)", re.DOTALL
)
_SPECIAL = frozenset("(){}+?|")
_BASIC_MARK = re.compile(r"(?<!\\)(?:\\\\)*\\[(){}+?|]")
_GROUP_REFERENCE = re.compile(r"(?<!\\)(?:\\\\)*\\[1-9]")
_WITHIN_LINE = {"s": r"[^\S\n]", "W": r"[^\w\n]", "D": r"[^\d\n]", "<": r"\b", ">": r"\b"}
_PART = re.compile(r"\\(?P<escaped>.)|(?P<one>.)", re.DOTALL)
_MEANS = {"n": "\n", "t": "\t"}


def regex_dialects(search: str, replacement: str) -> tuple[bool, ...]:
    """Return the dialects to try, in order: True for the basic one."""
    if _BASIC_MARK.search(search):
        return (True,)
    if "(" in search and _GROUP_REFERENCE.search(replacement):
        return (False,)
    return (True, False) if _SPECIAL & set(search) else (False,)


def to_regex(search: str, flags: str, *, basic: bool, first_in_line: bool = False) -> str:
    """Return a search as `/regex/flags`.

    With `first_in_line` it matches a line up to and with the first fit in it, as groups 1 and 2, so that
    running it everywhere replaces one fit a line.
    """
    shift = 2 if first_in_line else 0
    inner = "".join(_translated(search, token, basic=basic, shift=shift) for token in _TOKEN.finditer(search))
    return f"/^([^\\n]*?)({inner})/gm{flags}" if first_in_line else f"/(?:{inner})/m{flags}"


def to_replacement(replacement: str, *, first_in_line: bool = False) -> str:
    """Return a replacement with `$` references, for the pattern that `as_pattern` gives."""
    parts = [_referring(part, shift=2 if first_in_line else 0) for part in _PART.finditer(replacement)]
    return ("$01" if first_in_line else "") + "".join(parts)


def _translated(search: str, token: re.Match[str], *, basic: bool, shift: int) -> str:
    if token["escaped"]:
        return _escaped(token["escaped"], basic=basic, shift=shift)
    if token["members"] is not None:
        members = token["members"].replace("\\/", "/").replace("/", "\\/")
        return f"[^\\n{members}]" if token["negated"] else f"[{members}]"
    char = token["one"]
    if (basic and char in _SPECIAL) or char in "[/" or _is_plain_anchor(search, token):
        return "\\" + char
    return char


def _is_plain_anchor(search: str, token: re.Match[str]) -> bool:
    """Whether `^` or `$` stands where it can be no anchor: it is a character there."""
    if token["one"] == "^":
        return search[max(0, token.start() - 1) : token.start()] not in ("", "(", "|")
    return token["one"] == "$" and search[token.end() : token.end() + 1] not in ("", ")", "|", "\\")


def _escaped(char: str, *, basic: bool, shift: int) -> str:
    if char in _SPECIAL:
        return char if basic else "\\" + char
    if char in "123456789":
        return f"(?:\\{int(char) + shift})"
    if char in _WITHIN_LINE:
        return _WITHIN_LINE[char]
    return "\\" + char


def _referring(part: re.Match[str], *, shift: int) -> str:
    escaped, char = part["escaped"], part["one"]
    if char == "&" or escaped == "0":
        return "$02" if shift else "$&"
    if escaped and escaped in "123456789":
        return f"${int(escaped) + shift:02}"
    text = _MEANS.get(escaped, escaped) if escaped else char
    if escaped and escaped.isalnum() and escaped not in _MEANS:
        text = "\\" + escaped
    return "$$" if text == "$" else text

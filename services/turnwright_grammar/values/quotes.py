"""Lookahead that decides whether a quote closes a string, for strings with unescaped quotes inside.

| verdict | what follows | it closes |
|---|---|---|
| CERTAIN | a comma and the next member, the closers up to the end | always |
| LIKELY | a comma and another value, a closer, a comment | unless a quote is open inside the string |
| NO | anything else | never, at first |

Each judgement looks a bounded number of characters ahead, blanks and closers apart, which lie between
two quotes and so are looked at twice at most.
"""

from __future__ import annotations

import re
from enum import Enum, IntEnum


class ValuePosition(Enum):
    """The syntactic position of a string or word, which decides what may follow it."""

    KEY = "key"
    MEMBER = "member"
    ITEM = "item"
    ARGUMENT = "argument"


class CloseCertainty(IntEnum):
    """How surely a quote closes; NO is false."""

    NO = 0
    LIKELY = 1
    CERTAIN = 2


QUOTES = "\"'`\u201c\u201d\u201e\u00ab\u2018\u2019\u201a"
_QUOTE = f"[{QUOTES}]"
# Not in backticks: in prose a word in backticks and a colon begin an explanation.
_QUOTED_KEY = (
    r"(?:\"(?>(?:[^\"\\\n]|\\[^nrt]){0,200})\"|'(?>(?:[^'\\\n]|\\[^nrt]){0,200})'"
    r"|[\u201c\u201d\u201e][^\"\n\u201c\u201d]{0,200}[\u201c\u201d]"
    r"|[\u2018\u2019\u201a][^'\n\u2018\u2019]{0,200}[\u2018\u2019])\s{0,80}(?::|=>)"
)
# A string after a comma that is no key, no name and no item of a set: text goes on there.
_NO_NAME = re.compile(
    r"(?![\"'][\w$ .\-]{1,80}:[\s\"'\[{\d])"
    r"(?:\"(?>(?:[^\"\\\n]|\\.){1,200})\"|'(?>(?:[^'\\\n]|\\.){1,200})')(?!\s*[,}:]|\s+[\"'{\[\d\-]|\s*\Z)"
)
_ESCAPED_KEY = r"\\+[\"'][^\"'\n]{0,200}[\"']\s{0,80}:"
MEMBER_START = re.compile(rf"(?:[\w$]{{1,80}}\s{{1,80}})?(?:{_QUOTED_KEY}|{_ESCAPED_KEY})")
BARE_MEMBER_START = re.compile(r"[\w$][\w$ .\-]{0,80}[\"']?\s{0,80}(?::|=>)(?!//)")
FULL_MEMBER_START = re.compile(
    rf"{_QUOTED_KEY}\s{{0,80}}(?:{_QUOTE}|[\[{{(\d\-]|(?:true|false|null|none)\b)", re.IGNORECASE
)
_GLUED_MEMBER = re.compile(r"[\w$]{1,80}[\"']\s{0,80}:\s{0,80}[\"'\[{\d]")
KEYWORD_START = re.compile(r"[A-Za-z_]\w{0,80}(?P<space>\s{0,80})=(?!=)")
_VALUE_START = re.compile(
    rf"[rRbBfFuU]{{0,2}}{_QUOTE}|[\[{{(]|[+\-]?\.?\d|\.\.\.|\u2026|\\[\"']|<\||<escape"
    r"|(?:true|false|null|none|nan|infinity)\b",
    re.IGNORECASE,
)
_NAME_ARGUMENT = re.compile(r"[A-Za-z_][\w.]{0,80}\s{0,80}[,)\]]")
_ITEM_AFTER = re.compile(rf"{_QUOTE}[^\"'\n\u201c\u201d]{{0,200}}{_QUOTE}\s{{0,80}}(?:[,:\])\"']|\d|\Z)")
_LITERAL_AFTER = re.compile(r"(?:[+\-]?[\d.]{1,30}|true|false|null|none)\s{0,80}(?:[,\]})]|\Z)", re.IGNORECASE)
_WORDS_AFTER = re.compile(r"[^\s\"',\[\]{}]{1,80}(?: [^\s\"',\[\]{}]{1,80}){0,5}\"\s{0,80}[,\]]")
_LEAVES = re.compile(r"</?(?:\w{1,20}:)?(?:tool|function|invoke|param|arg)|<\||\+\s{0,80}[\"']")
_FENCE_END = re.compile(r"```[ \t]*(?:\n|\Z)")
_COMMENT = re.compile(r"//|/\*|\#\s")
_COMMENTS = re.compile(r"(?:\s+|//[^\n]*\n|/\*[\s\S]*?\*/|\#[^\n]*\n)*")
_COMMENT_CHARS_MAX = 200
_CLOSERS = re.compile(r"[\s}\])]*")
_OPENS_MEMBER = QUOTES + "{[(<.\u2026"
_AFTER_CLOSERS = QUOTES + ",;`</#"
_ESCAPED_BLANKS = re.compile(r"(?:[\s\ufeff]+|\\[nrt](?!\w))*")
BLANKS = re.compile(r"[\s\ufeff]*")


def close_certainty(text: str, at: int, after: int, place: ValuePosition, closers: str) -> CloseCertainty:
    """How surely the quote at `at` closes a string in `place`; the text would continue at `after`.

    `closers` are those of the open brackets, innermost last.
    """
    start, char = after, text[after : after + 1]
    if char.isalnum():
        # `"one"two": 1`: a comma and a quote are missing.
        is_glued = place is ValuePosition.MEMBER and text[at - 1].isalnum()
        return _likely(is_glued and _GLUED_MEMBER.match(text, after))
    if char.isspace() or char in "/#\\\ufeff":
        start = _ESCAPED_BLANKS.match(text, after).end()  # type: ignore[union-attr]
        if text.startswith(("/", "#"), start):
            start = _COMMENTS.match(text, start, start + _COMMENT_CHARS_MAX).end()  # type: ignore[union-attr]
        char = text[start : start + 1]
    if char == "":
        return CloseCertainty.CERTAIN
    spaced = text[after].isspace()
    if place is ValuePosition.KEY:
        return _after_key(char, spaced=spaced)
    if char in ",;":
        verdict = _after_comma(text, start + 1, place, closers)
        # A semicolon rather ends a line of code in the string.
        return verdict if char == "," else min(verdict, CloseCertainty.LIKELY)
    if char in "}])":
        return _after_closers(text, start, closers)
    return _after_neither(text, start, place, spaced=spaced, is_adjacent=spaced and not text[at - 1].isspace())


def _likely(found: object) -> CloseCertainty:
    return CloseCertainty.LIKELY if found else CloseCertainty.NO


def _after_key(char: str, *, spaced: bool) -> CloseCertainty:
    if char in ":=":
        return CloseCertainty.CERTAIN
    return _likely(char in ",}" or (spaced and (char in "\"'[{-" or char.isdigit())))


def _after_comma(text: str, position: int, place: ValuePosition, closers: str) -> CloseCertainty:
    start = _ESCAPED_BLANKS.match(text, position).end()  # type: ignore[union-attr]
    char = text[start : start + 1]
    if char == "":
        return CloseCertainty.CERTAIN
    if char in "}])":
        return _after_closers(text, start, closers)
    if char == "," or _COMMENT.match(text, start):
        return CloseCertainty.LIKELY
    if place is ValuePosition.MEMBER:
        return _before_member(text, start, char)
    return _before_argument(text, start) if place is ValuePosition.ARGUMENT else CloseCertainty.LIKELY


def _before_member(text: str, start: int, char: str) -> CloseCertainty:
    if MEMBER_START.match(text, start):
        return CloseCertainty.CERTAIN
    if text[start - 1].isalpha():
        # After a blank that is written `\n` only a key is no text.
        return CloseCertainty.NO
    if char in "\"'":
        return _likely(not _NO_NAME.match(text, start))
    return _likely(char in _OPENS_MEMBER or BARE_MEMBER_START.match(text, start))


def _before_argument(text: str, start: int) -> CloseCertainty:
    if keyword := KEYWORD_START.match(text, start):
        # `, x=1` is Python; `, x = 1` may be a line of the string.
        return CloseCertainty.LIKELY if keyword["space"] else CloseCertainty.CERTAIN
    return _likely(_VALUE_START.match(text, start) or _NAME_ARGUMENT.match(text, start))


def _after_closers(text: str, start: int, closers: str) -> CloseCertainty:
    run = _CLOSERS.match(text, start).end()  # type: ignore[union-attr]
    char = text[run : run + 1]
    if char == "" or _FENCE_END.match(text, run):
        return CloseCertainty.CERTAIN
    if closers and text[start] not in closers:
        # `print("x")`: a bracket that the string opened.
        return CloseCertainty.NO
    if char in _AFTER_CLOSERS or len("".join(text[start:run].split())) >= len(closers):
        return CloseCertainty.LIKELY
    return _likely(char in "[{" or BARE_MEMBER_START.match(text, run))


def _after_neither(text: str, start: int, place: ValuePosition, *, spaced: bool, is_adjacent: bool) -> CloseCertainty:
    """Without a delimiter after it: a comma may be missing; a comment, a fence or a vendor's token may follow."""
    char = text[start]
    if _FENCE_END.match(text, start):
        return CloseCertainty.CERTAIN
    if _LEAVES.match(text, start) or (spaced and _COMMENT.match(text, start)):
        return CloseCertainty.LIKELY
    if char == ":":
        return _likely(place is not ValuePosition.MEMBER)
    if place is ValuePosition.MEMBER:
        return _missing_comma(text, start, is_adjacent=is_adjacent)
    if place is ValuePosition.ARGUMENT:
        return _likely(KEYWORD_START.match(text, start) or (is_adjacent and char in "\"'"))
    found = _ITEM_AFTER.match(text, start) or _LITERAL_AFTER.match(text, start)
    return _likely(found or (is_adjacent and _WORDS_AFTER.match(text, start)))


def _missing_comma(text: str, start: int, *, is_adjacent: bool) -> CloseCertainty:
    if MEMBER_START.match(text, start):
        return CloseCertainty.CERTAIN
    if text[start] in "\"'":
        # `"one" "two"`: two strings where one was meant.
        return _likely(is_adjacent and text[start + 1 : start + 2].isalnum())
    return _likely(is_adjacent and (BARE_MEMBER_START.match(text, start) or _LITERAL_AFTER.match(text, start)))

"""The lexer of our own tags: `<get path="a"/>`, `<set path=b>`, `</set>`.

One pass over the text finds every tag of a known tool, whether or not it will count; the reader
decides that later. The pass is linear: a tag's attributes end at the next `<` at the latest, unless
that lies inside a well-formed quoted value.

Theory of quotes: models forget closing quotes, nest unescaped ones and escape them with
backslashes. A quote closes a value when what follows can follow a value (space, `/`, `>`, the end).
If the first candidate does not, and neither a later one on the same line does, the quote was
forgotten and the value ends where the tag visibly ends. Source: RU288, C38.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from html import unescape
from typing import Literal

Kind = Literal["open", "self", "close"]

QUOTES_TRIED_MAX = 40
_SPACES = re.compile(r"\s*")
_TAG_END = re.compile(r"/?\s*>")
_NAME = re.compile(r"[A-Za-z_:@][\w:.\-]*")
_EQUALS = re.compile(r"\s*=\s*")
_UNQUOTED = re.compile(r"[^\s\"'<>`]*")
_AFTER_VALUE = re.compile(r"[\s/>]|\Z")
_AFTER_ESCAPED = re.compile(r"\s+[A-Za-z_][\w:\-]*\s*=\s*[\"']|\s*/?>|\s*\Z")
_GLUED_NAME = re.compile(r"[A-Za-z_][\w:\-]*=[\"']")
_VISIBLE_END = re.compile(r"[<>\n]")
_RISKY = re.compile(r"[<>\n]")
_AFTER_RISKY = re.compile(r"\s+[A-Za-z_][\w:\-]*\s*(?:=|/?>)|\s*/?>|\s*\Z")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_LINE_START_TAG = re.compile(r"^[ \t]*(?=<)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Tag:
    """One tag as lexed.

    `complete` is false when no `>` ended it; `cut` is true when the end of the text came inside a
    value; `repaired` when a quote had to be guessed; `quoted` when backticks hug it; `first` when
    only blanks precede it on its line; `junk` when it held characters that no tag holds.
    """

    kind: Kind
    name: str
    start: int
    end: int
    attributes: dict[str, str] = field(default_factory=dict)
    complete: bool = True
    cut: bool = False
    repaired: bool = False
    quoted: bool = False
    first: bool = False
    junk: bool = False

    @property
    def plausible(self) -> bool:
        """Whether this is a call and not prose that happens to hold `<get`."""
        if self.complete:
            return not self.junk or any(self.attributes.values())
        return any(self.attributes.values())


def lex_tags(text: str, names: frozenset[str]) -> list[Tag]:
    """Return every tag in `text` of a tool in `names`, in order of position. Never raises."""
    firsts = {found.end() for found in _LINE_START_TAG.finditer(text)}
    return list(_lexed(text, _tag_opener(names), firsts))


def lex_at(text: str, start: int, name_end: int) -> Tag:
    """Lex one opening tag whose `<name` spans `start` to `name_end`, whatever its name."""
    return _open_tag(text, start, text[start + 1 : name_end], name_end, first=False)


def decode_entities(value: str) -> str:
    """Return `value` with complete entities decoded; `&copy=1` of a URL stays. Source: C38."""
    return _ENTITY.sub(lambda found: unescape(found[0]), value) if "&" in value else value


def _lexed(text: str, opener: re.Pattern[str], firsts: set[int]) -> Iterator[Tag]:
    position = 0
    while found := opener.search(text, position):
        start, name = found.start(), found["name"].lower()
        if found["slash"]:
            tag = _close_tag(text, start, name, found.end())
        else:
            tag = _open_tag(text, start, name, found.end(), first=start in firsts)
        yield tag
        position = max(tag.end, found.end())


@lru_cache(maxsize=64)
def _tag_opener(names: frozenset[str]) -> re.Pattern[str]:
    alternatives = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or r"(?!)"
    return re.compile(rf"<(?P<slash>/?)\s?(?P<name>{alternatives})(?=[\s/>]|\Z)", re.IGNORECASE)


def _close_tag(text: str, start: int, name: str, name_end: int) -> Tag:
    end = _SPACES.match(text, name_end).end()  # type: ignore[union-attr]
    complete = text.startswith(">", end)
    end = end + 1 if complete else name_end
    quoted = text.startswith("`", end) and start > 0 and text[start - 1] == "`"
    return Tag("close", name, start, end, complete=complete, quoted=quoted)


def _open_tag(text: str, start: int, name: str, name_end: int, *, first: bool) -> Tag:
    reading = _Attributes(text, name_end)
    reading.read()
    return Tag(
        "self" if reading.self_closing else "open",
        name,
        start,
        reading.position,
        reading.attributes,
        complete=reading.complete,
        cut=reading.cut,
        repaired=reading.repaired,
        quoted=start > 0 and text[start - 1] == "`",
        first=first,
        junk=reading.junk,
    )


class _Attributes:
    """Reads attributes from `position` to the end of the tag."""

    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.position = position
        self.attributes: dict[str, str] = {}
        self.complete = self.self_closing = self.cut = self.repaired = self.junk = False

    def read(self) -> None:
        while True:
            position = _SPACES.match(self.text, self.position).end()  # type: ignore[union-attr]
            if position >= len(self.text) or self.text[position] == "<":
                # Keep the blanks outside: `<get path="a"` and then text.
                return
            if ended := _TAG_END.match(self.text, position):
                self.complete, self.self_closing = True, ended[0] != ">"
                self.position = ended.end()
                return
            self.position = position
            if not self._read_one():
                self.junk = True
                self.position += 1

    def _read_one(self) -> bool:
        named = _NAME.match(self.text, self.position)
        if named is None:
            return False
        name = named[0].lower()
        equals = _EQUALS.match(self.text, named.end())
        if equals is None:
            self.position = named.end()
            self.attributes.setdefault(name, "")
            return True
        self.position = equals.end()
        value = self._value()
        if not self.attributes.get(name):
            self.attributes[name] = decode_entities(value)
        return True

    def _value(self) -> str:
        text, start = self.text, self.position
        escaped = text.startswith(('\\"', "\\'"), start)
        if escaped:
            start += 1
        if text[start : start + 1] in ("'", '"'):
            return self._quoted(start + 1, text[start], "\\" if escaped else "")
        value = _UNQUOTED.match(text, start)[0]  # type: ignore[index]
        if value.endswith("/") and text.startswith(">", start + len(value)):
            value = value[:-1]
        self.position = start + len(value)
        return value

    def _quoted(self, start: int, quote: str, escape: str) -> str:
        """Read to the quote that closes the value; see the theory at the top."""
        closer = escape + quote
        candidate = self.text.find(closer, start)
        for _ in range(QUOTES_TRIED_MAX):
            if candidate < 0:
                break
            after = candidate + len(closer)
            backslashed = not escape and self.text[candidate - 1] == "\\"
            follows = _AFTER_VALUE
            if backslashed:
                follows = _AFTER_ESCAPED
            elif _RISKY.search(self.text, start, candidate):
                follows = _AFTER_RISKY
            if follows.match(self.text, after):
                self.position = after
                value = self.text[start:candidate]
                return value if escape else value.replace("\\" + quote, quote)
            if not backslashed:
                return self._doubtful(start, candidate, quote)
            candidate = self.text.find(closer, after)
        return self._unquoted_end(start)

    def _doubtful(self, start: int, candidate: int, quote: str) -> str:
        value = self.text[start:candidate]
        if not any(char in value for char in "<>\n"):
            if _GLUED_NAME.match(self.text, candidate + 1):
                self.position = candidate + 1
                return value
            line_end = _line_end(self.text, candidate)
            closing = re.compile(re.escape(quote) + r"\s*/?>").search(self.text, candidate, line_end)
            if closing and "<" not in self.text[candidate : closing.start()]:
                self.position, self.repaired = closing.start() + 1, True
                return self.text[start : closing.start()]
        return self._unquoted_end(start)

    def _unquoted_end(self, start: int) -> str:
        ended = _VISIBLE_END.search(self.text, start)
        end = ended.start() if ended else len(self.text)
        value = self.text[start:end]
        self.cut = ended is None
        if ended and ended[0] == ">":
            value = value.removesuffix("/")
        value = value.rstrip()
        self.position, self.repaired = start + len(value), True
        return value


def _line_end(text: str, start: int, chars_max: int = 4_000) -> int:
    end = text.find("\n", start, start + chars_max)
    return min(len(text), start + chars_max) if end < 0 else end

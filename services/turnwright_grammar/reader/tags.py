"""The lexer of our own tags: `<get path="a"/>`, `<set path=b>`, `</set>`.

Well-formed tags take a fast path, and simple calls (`simple_call_pattern`) are a single match; the slow path repairs.
It is linear in the length of the tag: attributes end before the next `<` outside of a quoted value.

Quotes: models forget closing quotes, nest unescaped ones and escape them with backslashes. A quote closes a value if
what follows can follow a value (space, `/`, `>`, the end). If no quote on the line does, the closing quote was
forgotten, and the value ends with the tag. Source: RU288, C38.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from html import unescape
from typing import Literal

from msgspec import Struct, field

TagKind = Literal["open", "self", "close"]

QUOTES_TRIED_MAX = 40
INDENT_CHARS_MAX = 200
_LINE_CHARS_MAX = 4_000
_SPACES = re.compile(r"\s*")
_TAG_END = re.compile(r"[/\\]?\s*>")
_END_BEGUN = re.compile(r"[/\\]\s*\Z")
_NAME = re.compile(r"[A-Za-z_:@][\w:.\-]*")
_CLOSE_REST = re.compile(r"\s*[^<>\n]{0,200}")
_EQUALS = re.compile(r"\s*=\s*")
_UNQUOTED = re.compile(r"[^\s\"'<>`]*")
_AFTER_VALUE = re.compile(r"[\s/>]|\\>|\Z")
_AFTER_ESCAPED = re.compile(r"\s+[A-Za-z_][\w:\-]*\s*=\s*[\"']|\s*/?>|\s*\Z")
_AFTER_RISKY = re.compile(r"\s+[A-Za-z_][\w:\-]*\s*(?:=|/?>)|\s*/?>|\s*\Z")
_NEUTRAL = re.compile(r"[\s\w:\-=/\"'\\]*")
_GLUED_NAME = re.compile(r"[A-Za-z_][\w:\-]*=[\"']")
_TYPOGRAPHIC = frozenset("\u201c\u201d\u2018\u2019")
_TYPOGRAPHIC_END = re.compile(r"[\u201c\u201d\u2018\u2019\"<>\n]")
_VISIBLE_END = re.compile(r"[<>\n]")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_ATTRIBUTES = r"""((?>(?:\s++[A-Za-z_][\w:.\-]*+=(?:"[^"<>\n\\]*+"|'[^'<>\n\\]*+'))*))\s*+"""
_WELL_FORMED = re.compile(rf"{_ATTRIBUTES}(?P<self>/?)>")
_ATTRIBUTE = re.compile(r"""\s([A-Za-z_][\w:.\-]*)=(?:"([^"]*)"|'([^']*)')""")


class Tag(Struct, frozen=True):
    """A tag token.

    `complete`: it ends with `>`. `cut`: the text ends inside a value. `repaired`: the place of a quote was guessed.
    `junk`: it contains characters that no tag has. `touched`: the lexer reached the end of the text, so more text
    might change the tag.
    """

    kind: TagKind
    name: str
    start: int
    end: int
    attributes: dict[str, str] = field(default_factory=dict)
    complete: bool = True
    cut: bool = False
    repaired: bool = False
    junk: bool = False
    touched: bool = False

    @property
    def plausible(self) -> bool:
        """Whether this is a call and not `<get` in prose."""
        if self.complete:
            return not self.junk or any(self.attributes.values())
        return any(self.attributes.values())


def lex_tag(text: str, opener: re.Match[str]) -> Tag:
    """Lex the tag that `opener` (a match of `tag_pattern(...)`) begins. Never raises."""
    start, end = opener.span()
    name = opener[2].lower()
    if opener[1]:
        return _close_tag(text, start, name, end)
    return lex_open(text, start, name, end)


def lex_open(text: str, start: int, name: str, name_end: int) -> Tag:
    """Lex one opening tag whose `<name` spans `start` to `name_end`, whatever its name."""
    if found := _WELL_FORMED.match(text, name_end):
        return Tag("self" if found["self"] else "open", name, start, found.end(), well_formed(found[1]))
    state = _Attributes(text, name_end)
    state.read()
    return Tag(
        "self" if state.self_closing else "open",
        name,
        start,
        state.position,
        state.attributes,
        state.complete,
        state.cut,
        state.repaired,
        state.junk,
        state.touched,
    )


def well_formed(text: str) -> dict[str, str]:
    """Return the attributes in a text that holds nothing but them."""
    attributes: dict[str, str] = {}
    for key, double, single in _ATTRIBUTE.findall(text) if text else ():
        if not attributes.get(key.lower()):
            attributes[key.lower()] = decode_entities(double or single)
    return attributes


def decode_entities(value: str) -> str:
    """Return `value` with complete entities decoded; `&copy=1` of a URL stays. Source: C38."""
    return _ENTITY.sub(lambda found: unescape(found[0]), value) if "&" in value else value


def begins_line(text: str, start: int) -> bool:
    """Whether nothing but blanks (at most 200) stands before `start` on its line."""
    low = max(0, start - INDENT_CHARS_MAX)
    line = text.rfind("\n", low, start) + 1
    if line == 0 and low > 0:
        return False
    return line == start or text[line:start].isspace()


def follows_backtick(text: str, start: int) -> bool:
    """Whether a backtick stands right before `start`."""
    return start > 0 and text[start - 1] == "`"


@lru_cache(maxsize=64)
def tag_pattern(names: frozenset[str]) -> re.Pattern[str]:
    """Return the pattern of `<name` and `</name` for any of `names`: group 1 is the slash, group 2 the name."""
    return re.compile(rf"<(/?)\s?({_any_of(names)})(?=[\s/>]|\Z)", re.IGNORECASE)


@lru_cache(maxsize=64)
def simple_call_pattern(names: frozenset[str]) -> re.Pattern[str]:
    """Return the pattern of a well-formed call of any of `names` whose body holds neither a tag nor a backtick.

    Group 1 is the name, group 2 the attributes, group 3 the body, which a tag that ends itself has not.
    """
    lower = _any_of(name for name in names if name.islower())
    return re.compile(rf"<({lower}){_ATTRIBUTES}(?:/>|>([^<`]*+)</\1>)")


def _any_of(names: Iterable[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or r"(?!)"


def _close_tag(text: str, start: int, name: str, name_end: int) -> Tag:
    if text.startswith(">", name_end):
        return Tag("close", name, start, name_end + 1)
    rest = _CLOSE_REST.match(text, name_end)
    end = rest.end() if rest else name_end
    touched = end >= len(text)
    if rest and text.startswith(">", end):
        return Tag("close", name, start, end + 1, repaired=bool(rest[0].strip()))
    return Tag("close", name, start, name_end, complete=False, touched=touched)


class _Attributes:
    """Reads attributes from `position` to the end of the tag."""

    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.position = position
        self.attributes: dict[str, str] = {}
        self.complete = self.self_closing = self.cut = self.repaired = self.junk = self.touched = False

    def read(self) -> None:
        while True:
            position = _SPACES.match(self.text, self.position).end()  # type: ignore[union-attr]
            if position >= len(self.text) or self.text[position] == "<":
                # Keep the blanks outside: `<get path="a"` and then text.
                self.touched |= position >= len(self.text)
                return
            if ended := _TAG_END.match(self.text, position):
                self.complete, self.self_closing = True, ended[0] != ">"
                self.position = ended.end()
                return
            self.position = position
            if ended := _END_BEGUN.match(self.text, position):
                self.position, self.touched = ended.end(), True
                return
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
        quote = text[start : start + 1]
        if quote in ("'", '"'):
            return self._quoted(start + 1, quote, "\\" if escaped else "")
        if quote in _TYPOGRAPHIC:
            return self._typographic(start + 1)
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
            elif _VISIBLE_END.search(self.text, start, candidate):
                follows = _AFTER_RISKY
            if self._follows(follows, after):
                self.position = after
                value = self.text[start:candidate]
                return value if escape else value.replace("\\" + quote, quote)
            if not backslashed:
                return self._doubtful(start, candidate, quote)
            candidate = self.text.find(closer, after)
        self.touched |= candidate < 0
        return self._unquoted_end(start)

    def _typographic(self, start: int) -> str:
        # Word processors' quotes close with one of their kind, or with a keyboard's.
        closing = _TYPOGRAPHIC_END.search(self.text, start)
        if closing is None or closing[0] in "<>\n":
            self.touched |= closing is None
            return self._unquoted_end(start)
        self.position, self.repaired = closing.end(), True
        return self.text[start : closing.start()]

    def _follows(self, pattern: re.Pattern[str], after: int) -> bool:
        found = pattern.match(self.text, after)
        end = found.end() if found else _NEUTRAL.match(self.text, after).end()  # type: ignore[union-attr]
        self.touched |= end >= len(self.text)
        return found is not None

    def _doubtful(self, start: int, candidate: int, quote: str) -> str:
        value = self.text[start:candidate]
        if not any(char in value for char in "<>\n"):
            if self._follows(_GLUED_NAME, candidate + 1):
                self.position = candidate + 1
                return value
            line_end = self._line_end(candidate)
            closing = _closing_quote(quote).search(self.text, candidate, line_end)
            if closing and "<" not in self.text[candidate : closing.start()]:
                self.position, self.repaired = closing.start() + 1, True
                return self.text[start : closing.start()]
        return self._unquoted_end(start)

    def _line_end(self, start: int) -> int:
        limit = start + _LINE_CHARS_MAX
        end = self.text.find("\n", start, limit)
        if end >= 0:
            return end
        self.touched |= limit > len(self.text)
        return min(len(self.text), limit)

    def _unquoted_end(self, start: int) -> str:
        ended = _VISIBLE_END.search(self.text, start)
        end = ended.start() if ended else len(self.text)
        value = self.text[start:end]
        self.cut = ended is None
        self.touched |= self.cut
        if ended and ended[0] == ">":
            value = value.removesuffix("/")
        value = value.rstrip()
        self.position, self.repaired = start + len(value), True
        return value


@lru_cache(maxsize=2)
def _closing_quote(quote: str) -> re.Pattern[str]:
    return re.compile(quote + r"\s*/?>")

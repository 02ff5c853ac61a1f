"""The lenient parser of one JSON-like value.

Accepts JSON and, beyond it: single, typographic, doubled, tripled, escaped and vendors' quotes, Python's
literals, tuples, sets and string prefixes, comments, missing or doubled commas and colons, unquoted keys
and words, quotes inside strings that nobody escaped, missing, stray and swapped closers, ellipses.

One loop over a stack of open brackets: no recursion, so no depth of nesting can exhaust it. Linear:
`position` only grows, and what is looked at ahead is bounded.
"""

from __future__ import annotations

import re

from msgspec import Struct, field
from msgspec.structs import replace

from turnwright_grammar.values.quotes import BLANKS, MEMBER_START, ValuePosition
from turnwright_grammar.values.strict import ReadValue, Value, read_strict
from turnwright_grammar.values.strings import StringReader, string_starts
from turnwright_grammar.values.unquoted import UnquotedReader

# A partly read object, list or tuple.

CLOSERS = {"{": "}", "[": "]", "(": ")"}
ELLIPSES = ("...", "\u2026")


class Bracket(Struct):
    """An open bracket and its content so far. `key` is without its value yet; `keyless` are values without a key."""

    opener: str
    members: dict[str, Value] = field(default_factory=dict)
    items: list[Value] = field(default_factory=list)
    key: str | None = None
    keyless: list[tuple[Value, bool]] = field(default_factory=list)
    commas: int = 0

    def add(self, value: Value) -> None:

        if self.opener != "{":
            self.items.append(value)
        elif self.key is not None:
            self.members[self.key] = value
            self.key = None
        else:
            self._add_keyless(value)

    def _add_keyless(self, value: Value) -> None:
        last = next(reversed(self.members), None)
        if isinstance(value, dict) and self.members:
            self.members.update(value)
        elif isinstance(value, list) and last is not None:
            held = self.members[last]
            if isinstance(held, list):
                held.extend(value)
        else:
            self.keyless.append((value, True))

    def add_key(self, name: Value, *, quoted: bool) -> None:
        """Add a key without a value: an item of a set, or a member without a value; a bare word is then noise."""
        if not self.members:
            self.keyless.append((name, quoted))
        elif quoted and isinstance(name, str):
            self.members.setdefault(name, "")

    def value(self) -> Value:
        if self.opener == "{":
            return self._object()
        if self.opener == "(" and not self.commas and self.items:
            if len(self.items) == 1:
                return self.items[0]
            if all(isinstance(item, str) for item in self.items):
                return "".join(map(str, self.items))
        return self.items

    def _object(self) -> Value:
        if self.key is not None:
            self.add("")
        if self.members:
            for name, quoted in self.keyless:
                if quoted and isinstance(name, str):
                    self.members.setdefault(name, "")
            return self.members
        found = [value for value, _ in self.keyless if value not in ELLIPSES]
        if len(found) == 1 and isinstance(found[0], dict | list) and not self.commas:
            # `{{"a": 1}}`: braces doubled as in templates.
            return found[0]
        # Python's set: `{'a', 'b'}` has items and no keys.
        return found or self.members


DEPTH_MAX = 100
_WORD_LIKE = re.compile(r"[\w$ .\-]*")
_OPENERS = re.compile(r"[\[{(]+")
_KEY = re.compile(r"[^:=,;{}\[\]()\"'\n\u201c\u201d]+")
_SCALAR = (
    r"(?:\"(?P<double>[^\"\\]*)\"|'(?P<single>[^'\\]*)'"
    r"|(?P<number>-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?)|(?P<literal>true|false|null|True|False|None))"
)
_CLOSED = r"[}\]][\s}\])]*(?:[,\"']|\Z)"
_PLAIN_MEMBER = re.compile(
    r"(?:\"([^\"'\\\n]{1,200})\"|'([^\"'\\\n]{1,200})'|([A-Za-z_$][\w$]{0,200})):\s*"
    rf"{_SCALAR}(?:(?=\s*{_CLOSED})|\s*,\s*(?=[\"'][^\"'\n]{{1,200}}[\"']\s*:|[A-Za-z_][\w$]{{0,200}}\s*:))"
)
_PLAIN_ITEM = re.compile(rf"{_SCALAR}(?:(?=\s*{_CLOSED})|\s*,\s*(?=[\"'{{\[\d\-]|(?:true|false|null)\b))")
_PLAIN_KEY = re.compile(
    r"(?:\"([^\"'\\\n]{1,200})\"|'([^\"'\\\n]{1,200})'|([A-Za-z_$][\w$]{0,200}))[ \t]*:[ \t]*+(?![:=>])"
)
_COLON = re.compile(r"\s*(?:(?:[:=]>?|=>)\s*)+")
_COMMA_FOR_COLON = re.compile(r"\s*,\s*(?=[\d\-\[{]|(?:true|false|null)\b)", re.IGNORECASE)
_EMPTY_PAIRS = re.compile(r"(?:\"\"|'')+(?=\s+[\"'])")
_MEMBER_AFTER_CLOSER = re.compile(r"\}[\s}]*,\s*[\"'][^\"'\n]{0,200}[\"']\s*:")
_ITEM_KEY = re.compile(r"[A-Za-z_]\w{0,80}\s{0,80}(?::\s|=>)\s*(?=[\"'{\[\d])")
_JOINS = re.compile(r"\s*\+\s*(?=[\"'])")
_ADJACENT = re.compile(r"\s*(?=[rRbBfFuU]{0,2}[\"'])")
_LINE_COMMENT = re.compile(r"[^\n]*\n")
_LAST_COMMENT = re.compile(r"[^}\])]*")
_BLOCK_COMMENT = re.compile(r"/\*[\s\S]*?(?:\*/|\Z)")
_ESCAPED_BLANK = re.compile(r"\\(?:[nrt](?![\w])|\n)")
_LITERALS: dict[str, Value] = {"true": True, "false": False, "null": None, "none": None}
_NO_VALUE = ("", *",;}])/#\\ \t\r\n")


def read_lenient(text: str, start: int = 0, *, full_lookahead: bool = False) -> ReadValue | None:
    """The value at `start` (blanks skipped), or None if there is none.

    It may extend to the end of the text. `full_lookahead`: search the whole text for the end of an unterminated string.
    Never raises; linear.
    """
    return _Reader(text, start, full_lookahead=full_lookahead).read()


def read_value(
    text: str, start: int = 0, limit: int | None = None, *, full_lookahead: bool = False
) -> ReadValue | None:
    """The value that begins at `start` (blanks skipped) and ends before `limit`, or None if there is none.

    `full_lookahead` as in `read_lenient`. Never raises; linear in `limit - start`.
    """
    part = text[start:limit]
    strict = read_strict(part)
    if isinstance(strict, ReadValue):
        return ReadValue(strict.value, start + strict.end) if start else strict
    read = read_lenient(part, full_lookahead=full_lookahead)
    if read is None:
        return None
    cut = read.cut and (limit is None or limit >= len(text))
    return replace(read, end=start + read.end, cut=cut)


def _plain_value(found: re.Match[str]) -> Value:
    raw = found[found.lastgroup or 0]
    match found.lastgroup:
        case "number":
            return float(raw) if "." in raw else int(raw)
        case "literal":
            return _LITERALS[raw.lower()]
        case _:
            return raw


class _Reader:
    def __init__(self, text: str, position: int, *, full_lookahead: bool) -> None:
        self.text = text
        self.position = position
        self.cut = self.over = False
        self.result: Value = None
        self.brackets: list[Bracket] = []
        self.closers = ""
        self.too_deep = 0
        self.is_last_line = False
        self.strings = StringReader(text, full_lookahead=full_lookahead)
        self.words = UnquotedReader(text)

    def read(self) -> ReadValue | None:
        self._skip()
        if self._char() in ("", *"}]):,;"):
            return None
        self._value()
        while self.brackets:
            self._step()
        read = ReadValue(self.result, self.position, repaired=True, cut=self.cut, over=self.over)
        return replace(read, looked_chars=self.strings.looked_chars)

    def _step(self) -> None:
        self._skip()
        bracket, char = self.brackets[-1], self._char()
        if char == "":
            self.cut = True
            self._close()
        elif char in "}])":
            self._closer(bracket, char)
        elif char in ",;":
            self.position += 1
            bracket.commas += 1
            if bracket.key is not None:
                bracket.add("")
        elif bracket.opener == "{" and bracket.key is None:
            if not self._plain_members(bracket):
                self._member(bracket, char)
        elif bracket.opener != "[" or not self._plain_items(bracket):
            self._value()

    def _plain_members(self, bracket: Bracket) -> bool:
        """Read valid members, if any: most of broken JSON is valid."""
        members, start = bracket.members, self.position
        in_list = self.closers[-2:-1] == "]"
        while found := _PLAIN_MEMBER.match(self.text, self.position):
            key = found[1] or found[2] or found[3]
            if in_list and key in members:
                break
            members[key] = _plain_value(found)
            self.position = found.end()
        return self.position > start

    def _plain_items(self, bracket: Bracket) -> bool:
        start = self.position
        while found := _PLAIN_ITEM.match(self.text, self.position):
            bracket.items.append(_plain_value(found))
            self.position = found.end()
        return self.position > start

    def _value(self) -> None:
        char = self._char()
        if char in CLOSERS:
            if len(self.brackets) < DEPTH_MAX:
                self.position += 1
                self._open(Bracket(char))
            else:
                self._skip_too_deep()
        elif string_starts(self.text, self.position):
            self._string()
        else:
            self._word()

    def _skip_too_deep(self) -> None:
        """Beyond DEPTH_MAX, brackets are only counted; their content goes to the deepest one that was kept."""
        run = _OPENERS.match(self.text, self.position)
        if run is not None:
            self.position = run.end()
            self.too_deep += len(run[0])

    def _open(self, bracket: Bracket) -> None:
        self.brackets.append(bracket)
        self.closers += CLOSERS[bracket.opener]

    def _close(self) -> None:
        value = self.brackets.pop().value()
        self.closers = self.closers[:-1]
        self._take(value)

    def _take(self, value: Value) -> None:
        if self.brackets:
            self.brackets[-1].add(value)
        else:
            self.result = value

    def _closer(self, bracket: Bracket, char: str) -> None:
        """A closer of an outer bracket also closes this one, whose own closer was forgotten."""
        if self.too_deep:
            self.too_deep -= 1
            self.position += 1
        elif char == CLOSERS[bracket.opener]:
            continues_block = char == "}" and len(self.brackets) == 1 and self._member_follows()
            self.position += 1
            if not continues_block:
                self._close()
        elif char == "}" and bracket.opener == "[" and self.closers[-2:-1] == "}" and self._member_follows():
            # `["a"}, "key": ...`: the brace was meant as a bracket.
            self.position += 1
            self._close()
        elif char in self.closers:
            self._close()
        else:
            self.position += 1

    def _member_follows(self) -> bool:
        return _MEMBER_AFTER_CLOSER.match(self.text, self.position) is not None

    def _member(self, bracket: Bracket, char: str) -> None:
        if plain := _PLAIN_KEY.match(self.text, self.position):
            self.position = plain.end()
            self._name(bracket, plain[plain.lastindex or 0])
            return
        if junk := _EMPTY_PAIRS.match(self.text, self.position):
            self.position = junk.end()
            self._skip()
        elif char in CLOSERS:
            if char == "{" and bracket.members and self.closers[-2:-1] == "]":
                # `[{"a": 1, {"a": 2}]`: the first object was not closed.
                self._close()
            self._value()
            return
        elif char == "#":
            self._skip_line()
            return
        quoted = string_starts(self.text, self.position)
        key = self._quoted_key() if quoted else self._bare_key()
        if key is None:
            return
        self._after_key(bracket, key, quoted=quoted)

    def _quoted_key(self) -> str | None:
        read = self.strings.read(self.position, ValuePosition.KEY, self.closers)
        ends_line = self.text[read.end - 2 : read.end - 1] == "\n"
        self.position = read.end
        self.cut |= read.cut
        if read.cut:
            # A truncated key.
            return None
        return read.value.rstrip("\n") if ends_line else read.value

    def _bare_key(self) -> str:
        found = _KEY.match(self.text, self.position)
        if found is None:
            self.position += self._char() not in ":="
            return ""
        self.position = found.end()
        if self._char() in ("'", '"') and _COLON.match(self.text, self.position + 1):
            self.position += 1
        return found[0].strip()

    def _after_key(self, bracket: Bracket, key: str, *, quoted: bool) -> None:
        if colon := _COLON.match(self.text, self.position):
            self.position = colon.end()
            self._name(bracket, key)
            return
        self._skip()
        char = self._char()
        if quoted and not bracket.members and (comma := _COMMA_FOR_COLON.match(self.text, self.position)):
            self.position = comma.end()
            self._name(bracket, key)
        elif char in ("", *",;}])"):
            self.over = True
            if char:
                bracket.add_key(key if quoted else self._word_value(key), quoted=quoted)
        elif quoted or not MEMBER_START.match(self.text, self.position):
            # `"key" "value"`: the colon is missing. `COMMENT "key":` is noise before a key.
            self._name(bracket, key)
        else:
            self.over = True

    def _word_value(self, raw: str) -> Value:
        return UnquotedReader(raw).read(0, ValuePosition.ITEM, "").value if raw else raw

    def _name(self, bracket: Bracket, key: str) -> None:
        """Set the next key; in a list, a repeated first key begins the next object."""
        if self.closers[-2:-1] == "]" and key == next(iter(bracket.members), None):
            self._close()
            bracket = Bracket("{")
            self._open(bracket)
        bracket.key = key
        self.over |= _WORD_LIKE.fullmatch(key) is None
        if self._char() not in _NO_VALUE:
            self._value()

    def _string(self) -> None:
        place = self._place()
        read = self.strings.read(self.position, place, self.closers)
        parts = [read.value]
        while not read.cut and (joint := self._continuation(read.end, place)) >= 0:
            read = self.strings.read(joint, place, self.closers)
            parts.append(read.value)
        self.position = read.end
        self.cut |= read.cut
        self._item("".join(parts))

    def _continuation(self, end: int, place: ValuePosition) -> int:
        """The start of the next part of a concatenated string (`"a" + "b"`; outside of lists `"a" "b"`), or -1."""
        if joint := _JOINS.match(self.text, end):
            return joint.end()
        joint = _ADJACENT.match(self.text, end) if place in (ValuePosition.MEMBER, ValuePosition.ARGUMENT) else None
        if joint is None or MEMBER_START.match(self.text, joint.end()):
            return -1
        return joint.end()

    def _word(self) -> None:
        place = self._place()
        if place is ValuePosition.ITEM and (found := _ITEM_KEY.match(self.text, self.position)):
            name = _KEY.match(self.text, self.position)
            self.position = found.end()
            self._open(Bracket("{", key=name[0].strip() if name else ""))
            return
        read = self.words.read(self.position, place, self.closers)
        self.position = read.end
        self.cut |= read.end >= len(self.text) and not self.brackets
        if place is not ValuePosition.ITEM or (read.raw not in ELLIPSES and read.value != ""):
            self._item(read.value)

    def _item(self, value: Value) -> None:
        """Add a value; in a list, a string before a colon is the key of an object without braces."""
        if self._place() is ValuePosition.ITEM and isinstance(value, str):
            colon = _COLON.match(self.text, self.position)
            if colon is not None:
                self.position = colon.end()
                self._member_in_list(value)
                return
        self._take(value)

    def _member_in_list(self, key: str) -> None:
        """`["a": 1]` misses braces; `{"b": ["x", "a": 1}` misses the list's end."""
        items = self.brackets[-1].items
        if items and not isinstance(items[-1], dict) and self.closers[-2:-1] == "}":
            self._close()
            self._name(self.brackets[-1], key)
        else:
            self._open(Bracket("{", key=key))

    def _place(self) -> ValuePosition:
        if not self.brackets:
            return ValuePosition.ARGUMENT
        return ValuePosition.MEMBER if self.brackets[-1].opener == "{" else ValuePosition.ITEM

    def _char(self) -> str:
        return self.text[self.position : self.position + 1]

    def _skip(self) -> None:
        """Pass blanks and comments."""
        self.position = BLANKS.match(self.text, self.position).end()  # type: ignore[union-attr]
        while self._char() in ("/", "#", "\\") and self._skip_comment():
            self.position = BLANKS.match(self.text, self.position).end()  # type: ignore[union-attr]

    def _skip_comment(self) -> bool:
        text, position = self.text, self.position
        if text.startswith("//", position) or (text[position] == "#" and text[position + 1 : position + 2].isspace()):
            self._skip_line()
            return True
        found = _BLOCK_COMMENT.match(text, position) or _ESCAPED_BLANK.match(text, position)
        if found:
            self.position = found.end()
        return found is not None

    def _skip_line(self) -> None:
        # On the last line a comment leaves the closers: all of it may be on one line.
        self.is_last_line = self.is_last_line or self.text.find("\n", self.position) < 0
        pattern = _LAST_COMMENT if self.is_last_line else _LINE_COMMENT
        self.position = pattern.match(self.text, self.position).end()  # type: ignore[union-attr]

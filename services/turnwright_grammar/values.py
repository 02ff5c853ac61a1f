"""A tolerant reader of JSON-like values, as models write them.

Accepts JSON and, beyond it: single, typographic and vendor quotes (`<|"|>`, `<escape>`), Python's
`True`, `None`, tuples and sets, comments, missing or doubled commas, unquoted keys and words,
unescaped quotes inside strings, missing closers. `repaired` says that strict JSON would have
refused, `cut` that the end of the text came first.

Linear: every character is looked at a bounded number of times. Nesting deeper than DEPTH_MAX ends
the value.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum

Value = None | bool | int | float | str | list["Value"] | dict[str, "Value"]

DEPTH_MAX = 100
_SKIP = re.compile(r"(?:\s+|//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/|\Z)|\#[ \t][^\n]*)*")
_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?=\s*(?:[,\]})\n\"]|\Z|/[/*]))")
_WORD = re.compile(r"[^\s,:\[\]{}()\"'=<>]+")
_BARE = re.compile(r"[^,\]}\n\"]*")
_WORDS: dict[str, Value] = {"true": True, "false": False, "null": None, "none": None, "undefined": None, "nan": None}
_QUOTE = re.compile(r"<\|\"\|>|<escape>|[\"'\u201c`]")
_CLOSING_QUOTES = {"\u201c": "\u201d"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", '"': '"', "'": "'"}
_CLOSERS = {"{": "}", "[": "]", "(": ")"}


class NotStrict(Enum):
    """Why a text is not strict JSON: broken somewhere, or perhaps only ended too early."""

    BROKEN = "broken"
    CUT = "cut"


_STRICT = json.JSONDecoder(strict=False)
_BRACKET = re.compile(r"[\[{(]")
_FENCE = re.compile(r"```[\w+-]*[ \t]*\n?")


@dataclass(frozen=True, slots=True)
class ReadValue:
    """A value, where it ends, whether it had to be repaired, whether the text ended inside it."""

    value: Value
    end: int
    repaired: bool = False
    cut: bool = False


def read_value(text: str, start: int = 0, limit: int | None = None) -> ReadValue | None:
    """Return the value that begins at `start` and ends before `limit`, or None when there is none.

    Blanks before it are skipped. Never raises; the cost is linear in `limit - start`.
    """
    part = text[start:limit]
    strict = read_strict(part)
    if isinstance(strict, ReadValue):
        return ReadValue(strict.value, start + strict.end)
    read = read_loose(part)
    if read is None:
        return None
    cut = read.cut and (limit is None or limit >= len(text))
    return ReadValue(read.value, start + read.end, repaired=True, cut=cut)


def read_strict(part: str) -> ReadValue | NotStrict:
    """Return the JSON value that begins `part` (blanks skipped), or why there is none. Never raises.

    `part` should be a slice: the error of the standard decoder counts the lines before it.
    """
    try:
        value, end = _STRICT.raw_decode(part, _skip(part, 0))
    except json.JSONDecodeError as error:
        cut = error.pos >= len(part) - 1 or error.msg.startswith("Unterminated")
        return NotStrict.CUT if cut else NotStrict.BROKEN
    except (ValueError, RecursionError):
        return NotStrict.BROKEN
    if isinstance(value, int | float) and part[end : end + 1].isalnum():
        # `07`: JSON reads a 0 and leaves the 7.
        return NotStrict.BROKEN
    return ReadValue(value, end)


def read_loose(text: str, start: int = 0) -> ReadValue | None:
    """Return the value at `start` by the tolerant rules alone; it may run to the end of the text."""
    reader = _Reader(text, _skip(text, start))
    if reader.position >= len(text) or text[reader.position] in "}]):,":
        return None
    value = reader.value(0, in_object=False)
    return ReadValue(value, reader.position, repaired=True, cut=reader.cut)


def repair_json(text: str) -> Value:
    """Return the value of a whole JSON text that may be broken; `""` when there is no value in it.

    Prose and code fences around the value are skipped. Never raises.
    """
    try:
        return _STRICT.decode(text)  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        pass
    start = _first_value(text)
    read = read_loose(text, start) if start is not None else None
    return read.value if read is not None else ""


def _first_value(text: str) -> int | None:
    bracket = _BRACKET.search(text)
    fence = _FENCE.search(text)
    if (
        fence
        and (fenced := _BRACKET.match(text, _skip(text, fence.end())))
        and not (bracket and bracket.start() < fence.start() and text[bracket.start()] != "(")
    ):
        return fenced.start()
    if bracket:
        return bracket.start()
    found = re.search(r"\S", text)
    return found.start() if found and (found[0].isdigit() or found[0] in "\"'-") else None


def _skip(text: str, position: int) -> int:
    return _SKIP.match(text, position).end()  # type: ignore[union-attr]


class _Reader:
    """Recursive descent with recovery; `position` only grows."""

    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.position = position
        self.cut = False
        self.open: list[str] = []

    def value(self, depth: int, *, in_object: bool) -> Value:
        self._skip()
        char = self._char()
        if char in _CLOSERS and depth < DEPTH_MAX:
            self.position += 1
            self.open.append(_CLOSERS[char])
            inner = self._object(depth + 1) if char == "{" else self._array(depth + 1, _CLOSERS[char])
            self.open.pop()
            return inner
        if self._quote_at():
            return self._string(key=False, in_object=in_object)
        return self._scalar(in_object=in_object)

    def _object(self, depth: int) -> Value:
        members: dict[str, Value] = {}
        items: list[Value] = []
        while True:
            self._skip()
            char = self._char()
            if char == "" or char in "})]":
                if self._close("}", char):
                    break
                continue
            if char in ",;":
                self.position += 1
                continue
            self._member(members, items, depth)
        # Python's set: `{'a', 'b'}` has items and no keys.
        return list(items) if items and not members else members

    def _member(self, members: dict[str, Value], items: list[Value], depth: int) -> None:
        start = self.position
        if self._char() in _CLOSERS:
            extra = self.value(depth, in_object=True)
            self._extend_last(members, items, extra)
            return
        key = self._key()
        self._skip()
        if self._char() in (":", "=") and self._char():
            self.position += 1
            self._skip()
            members[key] = "" if self._char() in (",", "}") else self.value(depth, in_object=True)
        elif self._char() == "":
            self.cut = True
        elif self._char() in (",", "}"):
            items.append(key)
        if self.position == start:
            self.position += 1

    def _extend_last(self, members: dict[str, Value], items: list[Value], extra: Value) -> None:
        last = next(reversed(members), None)
        if last is not None and isinstance(members[last], list) and isinstance(extra, list):
            members[last] = [*members[last], *extra]  # type: ignore[misc]
        elif not members:
            items.append(extra)

    def _key(self) -> str:
        if self._quote_at():
            return self._string(key=True, in_object=True)
        found = _WORD.match(self.text, self.position)
        if found is None:
            self.position += 1
            return ""
        self.position = found.end()
        # `COMMENT "key": ...` : a word before a quoted key is noise.
        self._skip()
        if self._quote_at() and self._char() != "":
            return self._string(key=True, in_object=True)
        return found[0]

    def _array(self, depth: int, closer: str) -> Value:
        items: list[Value] = []
        commas = 0
        while True:
            self._skip()
            char = self._char()
            if char == "" or char in "}])":
                if self._close(closer, char):
                    break
                continue
            if char in ",;":
                commas += 1
                self.position += 1
                continue
            start = self.position
            item = self.value(depth, in_object=False)
            self._skip()
            if self._char() == ":" and isinstance(item, str):
                self.position += 1
                item = {item: self.value(depth, in_object=True)}
            if item != "..." or self.text[start : start + 1] in "\"'":
                items.append(item)
            if self.position == start:
                self.position += 1
        return items[0] if closer == ")" and len(items) == 1 and not commas else items

    def _close(self, expected: str, char: str) -> bool:
        """Whether a closer, or the end of the text, ends the value that `expected` would end."""
        if char == "":
            self.cut = True
            return True
        if char == expected or (expected == "]" and _MEMBER_FOLLOWS.match(self.text, self.position)):
            # `["a"}, "key": ...`: the brace was meant as a bracket.
            self.position += 1
            return True
        if char in self.open:
            # It belongs to an outer value: ours was forgotten.
            return True
        self.position += 1
        return False

    def _scalar(self, *, in_object: bool) -> Value:
        number = _NUMBER.match(self.text, self.position)
        if number is not None:
            self.position = number.end()
            if self._char() == '"':
                self._stray_quote()
            return _number(number[0])
        if not in_object:
            word = _WORD.match(self.text, self.position)
            if word is not None and word[0].lower() in _WORDS:
                self.position = word.end()
                return _WORDS[word[0].lower()]
        start = self.position
        end = self._bare_end(start)
        raw = self.text[start:end].strip()
        self.position = max(end, start + 1)
        if self._char() == '"' and raw:
            self._stray_quote()
        if raw.lower() in _WORDS:
            return _WORDS[raw.lower()]
        number = _NUMBER.fullmatch(raw)
        return _number(raw) if number else raw

    def _bare_end(self, start: int) -> int:
        """Where an unquoted value ends; braces inside it balance (`words{in brackets}`)."""
        depth, position = 0, start
        while position < len(self.text):
            char = self.text[position]
            if char == "{":
                depth += 1
            elif char == "}" and depth:
                depth -= 1
            elif char in ',]}")\n':
                break
            position += 1
        return position

    def _stray_quote(self) -> None:
        # `abcdef", "next"`: a quote that closes nothing.
        after = _skip(self.text, self.position + 1)
        if after >= len(self.text) or self.text[after] in ",]}":
            self.position += 1

    def _string(self, *, key: bool, in_object: bool) -> str:
        quotes = self._quote_at()
        if quotes is None:
            return ""
        opening, closing = quotes
        self.position += len(opening)
        doubled = len(closing) == 1 and self._char() == closing
        if doubled and not self._ends(self.position + 1, key=key, in_object=in_object):
            # `""key""`: doubled quotes.
            self.position += 1
            following = self.text.find(closing, self.position)
            if following >= 0 and self.text.startswith(closing * 2, following):
                closing *= 2
        parts: list[str] = []
        stops = re.compile(rf"\\|{re.escape(closing)}")
        while True:
            found = stops.search(self.text, self.position)
            if found is None:
                parts.append(self.text[self.position :])
                self.position, self.cut = len(self.text), True
                return _unclosed("".join(parts))
            parts.append(self.text[self.position : found.start()])
            self.position = found.end()
            if found[0] == "\\":
                parts.append(self._escape())
            elif self._ends(found.end(), key=key, in_object=in_object):
                self._skip_doubled(closing)
                return "".join(parts).strip("\n") if key else "".join(parts)
            else:
                parts.append(found[0])

    def _skip_doubled(self, closing: str) -> None:
        # `""key""` and `''value''`: the second quote belongs to the first.
        if self.text.startswith(closing, self.position) and self._ends(
            self.position + len(closing), key=False, in_object=True
        ):
            self.position += len(closing)

    def _ends(self, after: int, *, key: bool, in_object: bool) -> bool:
        """Whether a quote whose next character is at `after` closes the string."""
        after = _skip(self.text, after)
        if after >= len(self.text):
            return True
        char = self.text[after]
        if key:
            return char in ":=,}"
        if char in "}])":
            return True
        if char == ":":
            return not in_object
        if char == ",":
            comma_end = _skip(self.text, after + 1)
            following = self.text[comma_end : comma_end + 1]
            return following == "" or following in "\"'{[(]}`" or following.isalnum() or following in "-_<“"
        return char == "`" or self._next_member(after, in_object=in_object)

    def _next_member(self, after: int, *, in_object: bool) -> bool:
        # A missing comma: `"a" "key": 1` in an object, `"a" "b"` in an array.
        if self.text[after] not in "\"'":
            return False
        pattern = _MEMBER if in_object else _ITEM
        return pattern.match(self.text, after) is not None

    def _escape(self) -> str:
        char = self._char()
        self.position += 1
        if char == "u" and re.fullmatch(r"[0-9a-fA-F]{4}", self.text[self.position : self.position + 4]):
            code = int(self.text[self.position : self.position + 4], 16)
            self.position += 4
            return chr(code)
        if char in _ESCAPES:
            return _ESCAPES[char]
        return "\\" + char

    def _quote_at(self) -> tuple[str, str] | None:
        found = _QUOTE.match(self.text, self.position)
        return (found[0], _CLOSING_QUOTES.get(found[0], found[0])) if found else None

    def _char(self) -> str:
        return self.text[self.position : self.position + 1]

    def _skip(self) -> None:
        self.position = _skip(self.text, self.position)


_MEMBER = re.compile(r"[\"'][^\"'\n]{0,200}[\"']\s*:")
_ITEM = re.compile(r"[\"'][^\"'\n]{0,200}[\"']\s*(?:[,\]\"']|\d|\Z)")
_MEMBER_FOLLOWS = re.compile(r"\}\s*,\s*[\"'][^\"'\n]{0,200}[\"']\s*:")


def _number(raw: str) -> int | float | str:
    digits = raw.replace("_", "")
    try:
        return int(digits)
    except ValueError:
        pass
    try:
        return float(digits)
    except ValueError:
        return raw


def _unclosed(text: str) -> str:
    """What an unclosed string held: the closers that the quote swallowed are not part of it."""
    stripped = text.rstrip()
    while stripped.endswith(("}", "]", "```")):
        stripped = stripped.removesuffix("```").removesuffix("}").removesuffix("]").rstrip()
    return stripped if stripped != text.rstrip() else text

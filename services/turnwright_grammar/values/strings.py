"""The parser of quoted strings with unescaped quotes inside.

The first quote that `close_certainty` lets close the string ends it. Until then quotes inside are paired by the
way they lean, as in print: ` "so` opens and `so" ` closes; one between two letters is an apostrophe. A
string that found no end is read again: without minding its brackets, then only up to the first quote
that leaned like a closing one. A string of many quotes, which is code, ends where all that follows it is
sound JSON, if there is such a place.

Linear: a budget bounds second readings and a number the trials. Whoever reads many values out of one text
has less look-ahead: a few quotes on, the one that leaned will do.
"""

from __future__ import annotations

import re

from msgspec import Struct

from turnwright_grammar.values.quotes import (
    BLANKS,
    FULL_MEMBER_START,
    QUOTES,
    CloseCertainty,
    ValuePosition,
    close_certainty,
)
from turnwright_grammar.values.strict import ReadValue, read_strict

# Backslash escapes as JSON, JavaScript and Python have them, and as models get them wrong.
#
# An escape that none of them knows keeps its backslash: `\d` in a pattern and `C:\path` mean what they
# look like.

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


_TOKEN = re.compile(
    r"(?P<prefix>[rRbBfFuU]{1,2}(?=[\"'](?!\s*(?:[,}\])]|\Z))))?"
    r"(?P<token><\|\"\|>|<escape>|\"\"\"|'''|\\+[\"']|[" + QUOTES + "])"
)
_PLAIN = re.compile(r"\"[^\"\\]*\"|'[^'\\]*'")
_STRICT = re.compile(r"\"(?>(?:[^\"\\]|\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4}))*)\"")
_DOUBLE, _SINGLE = '\u201c\u201d"', "\u2018\u2019'"
_CLOSING = {
    "\u201c": _DOUBLE,
    "\u201d": _DOUBLE,
    "\u201e": _DOUBLE,
    "\u00ab": "\u00bb",
    "\u2018": _SINGLE,
    "\u2019": _SINGLE,
    "\u201a": _SINGLE,
}
_OTHER_QUOTE = {'"': "'", "'": '"'}
_WRONG_CLOSES = "\"'\u201d\u2019\u00bb"
_TRIPLES = ('"""', "'''")
_KEY_AND_COLON = re.compile(r"[\w$][\w$ .\-]{0,80}[\"'\u201d\u2019]?(?=\s{0,80}:)")
_NO_OPENING_AFTER = ".,!?\u2026%)]}"
_ESCAPED_BLANKS = ("\\n", "\\t", "\\r")
_DELIMITERS = ("", *",:;=}])")
_DELIMITER = re.compile(r"\s*[,}\])]")
_DOUBLED_CLOSE = re.compile(r"[^\"']{0,200}(?:\"\"|'')")
_BUDGET_PER_CHAR = 2
_LOOK_BACK_CHARS = 2_000
_SOUND_CLOSE = re.compile(
    r"\"(?>(?:\s{0,80},(?=\s{0,80}[}\]]))?)"
    r"(?=\s{0,80}(?:,\s{0,80}(?:\"(?>(?:[^\"\\\n]|\\.){0,200})\"|[\d{\[tfn\-])|[}\]][}\]\s]*(?:\Z|`|<)))"
)
_NOTHING_AFTER = re.compile(r"[\s}\]]*(?:\Z|`|<)")
_TRIES_FULL, _TRIES = 256, 16
_MANY_QUOTES = 12
_SOUND_CHARS_MAX = 65_536
_LOOKAHEAD_QUOTES = 32
_LOOKAHEAD_MARKS = 4_096


class ReadString(Struct, frozen=True):
    """The content of a string and its end; `cut`: it was truncated."""

    value: str
    end: int
    cut: bool = False


class _Opening(Struct, frozen=True):
    """The opening of a string: where the content begins, which quotes close it, and whether escapes count."""

    token: str
    begin: int
    closing: str
    raw: bool


def string_starts(text: str, position: int) -> bool:
    """Whether a quote, a vendor's quote or a prefixed Python quote stands at `position`."""
    return _TOKEN.match(text, position) is not None


class StringReader:
    """Reads the strings of one text."""

    def __init__(self, text: str, *, full_lookahead: bool) -> None:
        self.text = text
        self._full_lookahead = full_lookahead
        self._budget_chars = _BUDGET_PER_CHAR * len(text)
        self._tries = _TRIES_FULL if full_lookahead else _TRIES
        self._sound_close: tuple[int, re.Match[str] | None] = (len(text), None)
        self.looked_chars = 0

    def read(self, position: int, place: ValuePosition, closers: str) -> ReadString:
        """Return the string that opens at `position`; `closers` are those of the open brackets. Never raises."""
        plain = self._plain(position, place, closers)
        if plain is not None:
            return plain
        opening = self._opening(position, place, closers)
        if opening.token[0] in "<\\" or opening.token in _TRIPLES:
            return self._until_token(opening)
        return self._quoted(opening, place, closers)

    def _plain(self, position: int, place: ValuePosition, closers: str) -> ReadString | None:
        """A string that ends at its first quote, with the escapes of JSON or none."""
        found = _PLAIN.match(self.text, position)
        if found is not None:
            end = found.end()
            value = self.text[position + 1 : end - 1]
        elif strict := _STRICT.match(self.text, position):
            end = strict.end()
            value = decode(self.text[position + 1 : end - 1])
        else:
            return None
        return ReadString(value, end) if close_certainty(self.text, end - 1, end, place, closers) else None

    def _opening(self, position: int, place: ValuePosition, closers: str) -> _Opening:
        found = _TOKEN.match(self.text, position)
        if found is None:
            return _Opening('"', position + 1, '"', raw=False)
        token, begin, raw = found["token"], found.end(), "r" in (found["prefix"] or "").lower()
        if token in _TRIPLES:
            if self._is_triple(token, begin, place, closers):
                return _Opening(token, begin, token, raw)
            token, begin = token[0], begin - 2
        if len(token) == 1 and self._is_doubled(token, begin, place):
            begin += 1
        return _Opening(token, begin, _CLOSING.get(token, token), raw)

    def _is_triple(self, token: str, begin: int, place: ValuePosition, closers: str) -> bool:
        """Whether three quotes open a string, and not one quote a string that begins with two."""
        end = self._token_at(token, begin)
        if end >= 0:
            return close_certainty(self.text, end + 2, end + 3, place, closers) is not CloseCertainty.NO
        return place is not ValuePosition.KEY and self._after(begin) not in (*_DELIMITERS, token[0])

    def _is_doubled(self, quote: str, begin: int, place: ValuePosition) -> bool:
        # `""key""`: escaped the way spreadsheets do.
        if not self.text.startswith(quote, begin) or self.text[begin + 1 : begin + 2] in (*QUOTES, "\\"):
            return False
        if place is not ValuePosition.KEY and not _DOUBLED_CLOSE.match(self.text, begin + 1):
            return False
        return self._after(begin + 1) not in _DELIMITERS

    def _after(self, position: int) -> str:
        start = BLANKS.match(self.text, position).end()  # type: ignore[union-attr]
        return self.text[start : start + 1]

    def _until_token(self, opening: _Opening) -> ReadString:
        """A string between vendor tokens, which its content cannot contain."""
        end = self._token_at(opening.token, opening.begin)
        if end < 0:
            return ReadString(_content(opening, self.text[opening.begin :], cut=True), len(self.text), cut=True)
        return ReadString(_content(opening, self.text[opening.begin : end]), end + len(opening.token))

    def _token_at(self, token: str, start: int) -> int:
        if token[0] == "<":
            return self.text.find(token, start)
        if token[0] == "\\":
            found = re.compile(rf"(?<!\\){re.escape(token)}").search(self.text, start)
            return found.start() if found else -1
        for found in re.compile(rf"\\[\s\S]|{token}").finditer(self.text, start):
            if found[0] == token:
                return found.start()
        return -1

    def _quoted(self, opening: _Opening, place: ValuePosition, closers: str) -> ReadString:
        scan = _Scan(self.text, opening, place, closers, full_lookahead=self._full_lookahead)
        end = self._end_of(scan, opening, place, closers)
        self.looked_chars += scan.read_to - opening.begin
        if end < 0:
            raw = _without_closers(self.text[opening.begin :], len(closers))
            return ReadString(_content(opening, raw, cut=True), len(self.text), cut=True)
        raw = self.text[opening.begin : end]
        if scan.missing:
            raw = raw.rstrip().removesuffix(",").rstrip()
            return ReadString(_content(opening, _without_wrong_close(raw, opening.token)), end)
        over_escaped = scan.over_escaped and raw.startswith(("{", "["))
        return ReadString(_content(opening, raw, over_escaped=over_escaped), self._past_quotes(end, opening.closing))

    def _end_of(self, scan: _Scan, opening: _Opening, place: ValuePosition, closers: str) -> int:
        """The end of the content, or -1 if it is unterminated."""
        end = scan.run(skip_brackets=True)
        if scan.quotes and (sound := self._sound_end(opening, place, closers)) >= 0:
            scan.missing = False
            return sound
        if end < 0 and scan.saw_bracket and self._spend_budget(opening.begin):
            end = scan.run(skip_brackets=False)
        if end < 0 <= scan.likely_close and self._spend_budget(scan.likely_close):
            end = scan.likely_close
        if end < 0 and opening.token in _OTHER_QUOTE and not scan.out_of_budget and self._spend_budget(opening.begin):
            end = scan.run_with_other_quote(_OTHER_QUOTE[opening.token])
        return end

    def _sound_end(self, opening: _Opening, place: ValuePosition, closers: str) -> int:
        """The end of a string with many quotes if the rest is valid JSON, or -1.

        Code with unescaped quotes sooner or later contains anything that could close a string.
        """
        is_near = self._full_lookahead or len(self.text) - opening.begin < _SOUND_CHARS_MAX
        if opening.closing != '"' or place is not ValuePosition.MEMBER or ")" in closers or not is_near:
            return -1
        position = opening.begin
        while self._tries > 0 and (found := self._next_sound_close(position)):
            position = found.end()
            self._tries -= 1
            before = "".join('{"":' if closer == "}" else "[" for closer in closers) + "0"
            read = read_strict(before + self.text[found.end() :])
            if isinstance(read, ReadValue) and _NOTHING_AFTER.match(self.text, found.end() + read.end - len(before)):
                is_code = self.text.count('"', opening.begin, found.start()) >= _MANY_QUOTES
                return found.start() if is_code else -1
        return -1

    def _next_sound_close(self, start: int) -> re.Match[str] | None:
        # Cached, because it is asked for each string of the text.
        known_from, found = self._sound_close
        if start < known_from or (found is not None and found.start() < start):
            found = _SOUND_CLOSE.search(self.text, start)
            self._sound_close = (start, found)
        return found

    def _spend_budget(self, start: int) -> bool:
        self._budget_chars -= len(self.text) - start
        return self._budget_chars >= 0

    def _past_quotes(self, end: int, closing: str) -> int:
        # `""value""`: the second quote belongs to the first.
        doubled = self.text[end + 1 : end + 2]
        return end + 2 if doubled and doubled in closing and self._after(end + 2) in _DELIMITERS else end + 1


class _Scan:
    """The search for the closing quote of one string.

    `missing`: a member began where the closing quote should have been. `likely_close`: the first quote that was only
    likely to close. `over_escaped`: a quote inside was escaped twice. `out_of_budget`: the lookahead was used up.
    """

    def __init__(
        self, text: str, opening: _Opening, place: ValuePosition, closers: str, *, full_lookahead: bool
    ) -> None:
        self._text, self._opening, self._place, self._closers = text, opening, place, closers
        self._full_lookahead = full_lookahead
        self.out_of_budget = False
        self.saw_bracket = False
        self.quotes = 0
        self.read_to = opening.begin
        self.missing = False
        self.over_escaped = False
        self.likely_close = -1

    def run(self, *, skip_brackets: bool) -> int:
        """The end of the content, or -1; `skip_brackets` skips JSON inside the string."""
        inner, brackets, waited, self.quotes = 0, 0, 0, 0
        pattern = r"\\[\s\S]|[()\[\]{}]|[%s]" if skip_brackets else r"\\[\s\S]|[%s]"
        marks = re.compile(pattern % self._opening.closing).finditer(self._text, self._opening.begin)
        for number, found in enumerate(marks):
            mark, at = found[0], found.start()
            self.read_to = max(self.read_to, at)
            if mark in "([{":
                brackets, self.saw_bracket = brackets + (not inner), True
            elif mark in ")]}":
                brackets = max(0, brackets - (not inner))
            elif mark[0] != "\\":
                # Brackets count only in a string that goes on after its first quote.
                if (not self.quotes or not brackets) and (end := self._end_at(at, inner)) >= 0:
                    return end
                self.quotes, waited = self.quotes + 1, waited + (self.likely_close >= 0)
                self.over_escaped |= self._text[at - 1] == "\\"
                inner = self._skip_inner_quote(at, inner)
            if not self._full_lookahead and self._exceeds_budget(waited, number if skip_brackets else 0):
                return -1
        self.read_to = len(self._text)
        return -1

    def _exceeds_budget(self, waited: int, marks: int) -> bool:
        """Whether the lookahead after a likely closing quote is used up."""
        self.out_of_budget = self.quotes > _LOOKAHEAD_QUOTES
        return waited > _LOOKAHEAD_QUOTES or marks > _LOOKAHEAD_MARKS

    def run_with_other_quote(self, quote: str) -> int:
        """The end of a string that was closed with another quote than its own, or -1."""
        inner = 0
        for found in re.compile(rf"\\[\s\S]|{quote}").finditer(self._text, self._opening.begin):
            if found[0] == quote:
                at = found.start()
                verdict = close_certainty(self._text, at, at + 1, self._place, self._closers)
                if verdict is CloseCertainty.CERTAIN and not inner and _DELIMITER.match(self._text, at + 1):
                    return at
                inner = self._skip_inner_quote(at, inner)
        return -1

    def _end_at(self, at: int, inner: int) -> int:
        """The end of the content if the quote at `at` closes the string or belongs to what follows it, else -1."""
        verdict = close_certainty(self._text, at, at + 1, self._place, self._closers)
        if not verdict and not inner and self._text[at + 1 : at + 2] == self._text[at]:
            verdict = close_certainty(self._text, at, at + 2, self._place, self._closers)
        if verdict and (not inner or (verdict is CloseCertainty.CERTAIN and self._braces_balance(at))):
            return at
        if self._place is ValuePosition.KEY:
            return self._key_end()
        if self._place is ValuePosition.MEMBER and self._member_starts(at):
            self.missing = True
            return at
        return -1

    def _key_end(self) -> int:
        # `"key: "value"`, `"key': "value"`: the colon ends a key that was not closed, or wrongly.
        found = _KEY_AND_COLON.match(self._text, self._opening.begin)
        self.missing = found is not None
        return found.end() if found else -1

    def _member_starts(self, at: int) -> bool:
        # `"a": "one, "b": "two"`: the string was not closed. Inside braces it would be JSON in a string.
        text, begin = self._text, self._opening.begin
        if at == begin or not (text[at - 1].isspace() or text[at - 1] == ",") or not FULL_MEMBER_START.match(text, at):
            return False
        return self._braces_balance(at)

    def _braces_balance(self, at: int) -> bool:
        begin = max(self._opening.begin, at - _LOOK_BACK_CHARS)
        return self._text.count("{", begin, at) <= self._text.count("}", begin, at)

    def _skip_inner_quote(self, at: int, inner: int) -> int:
        """Handle a quote that does not close the string; returns the number of open quotes inside it."""
        before = " " if self._text[at - 2 : at] in _ESCAPED_BLANKS else self._text[at - 1]
        after = " " if self._text[at + 1 : at + 3] in _ESCAPED_BLANKS else self._text[at + 1 : at + 2]
        letter_before, letter_after = before.isalnum(), after.isalnum()
        if letter_before and letter_after:
            return inner
        opens = not letter_before and before not in _NO_OPENING_AFTER and not after.isspace()
        closes = not before.isspace() and not letter_after
        if inner and (closes or not opens):
            return inner - 1
        if opens:
            return inner + 1
        if closes and self.likely_close < 0:
            self.likely_close = at
        return inner


def _content(opening: _Opening, raw: str, *, cut: bool = False, over_escaped: bool = False) -> str:

    token = opening.token
    if opening.raw or token[0] == "<":
        return raw
    if token in _TRIPLES:
        raw = raw.removeprefix("\\\n")
    if token[0] == "\\":
        # `\"a\"`: the whole text was escaped once more.
        raw = decode(raw)
    if over_escaped:
        return decode_over_escaped(raw)
    return decode_truncated(raw) if cut else decode(raw)


def _without_closers(rest: str, depth: int) -> str:
    """The content of an unterminated string without the closers of outer brackets at its end."""
    stripped = rest.rstrip()
    whole = len(stripped)
    for _ in range(depth + 1):
        stripped = stripped.removesuffix("```").rstrip()
        if not stripped.endswith(("}", "]")) or whole - len(stripped) > 4 * depth + 4:
            break
        stripped = stripped[:-1].rstrip()
    return stripped if len(stripped) < whole else rest


def _without_wrong_close(raw: str, token: str) -> str:
    """The content of a string that was closed with another quote than its own, or with an escaped one."""
    last = raw[-1:]
    if last and last != token and last in _WRONG_CLOSES and raw.count(last) == 1:
        return raw[:-1]
    if raw.endswith("\\" + token):
        # `"C:\dir\"`: among other backslashes it was one, too; else it was an escape of the close.
        return raw[:-1] + "\\" if "\\" in raw[:-2] else raw[:-2]
    return raw

"""The result of parsing the text after a vendor's token: calls, and where they end.

Also the two things all notations need: blanks stepped over, and a JSON value read within a limit.
"""

from __future__ import annotations

import re

from msgspec import Struct, field

from turnwright_grammar.scanner import BracketBalance, TextScanner
from turnwright_grammar.values.lenient import read_value
from turnwright_grammar.values.strict import NotStrict, ReadValue, Value, read_strict

ParsedCall = tuple[str, Value]

# Longer than any part of a call's head: the lookahead in streamed text.
NAME = r"[A-Za-z_][\w.\-]{0,99}+"
GAP = r"\s{0,64}+"
# Vendors put a namespace before their tags: `minimax:`, `steptml:`, `|DSML|`.
SPACE = r"(?:\w++:|[|\uff5c]DSML[|\uff5c])?"
_CLOSERS = {"{": "}", "[": "]"}
_STRICT_CHARS_FIRST = 1_000
# So much is tried of a value without a budget.
_STRICT_CHARS_UNPAID = 250
# The lenient parser is slower than the strict one, so it takes more from the budget.
LENIENT_COST = 8
ATTEMPT_CHARS = 100
"""What an attempt costs at least."""
LIMIT = re.compile(
    r"</?(?:\w+[:|])?(?:tool_?calls?|tool_?use|function_?calls?)>|<tool_call\|>|<\|/?tool_call[^<>\n]*>"
    r"|<end_function_call>|<\|(?:end_message|action_end|tools_suffix|call|end)\|>|<\|END_ACTION\|>"
    r"|\[TOOL_CALLS\]|<[|\uff5c]tool[\u2581_]calls?[\u2581_](?:begin|end)[|\uff5c]>",
)
_CLOSES = re.compile(r"/|end|END|suffix|<tool_call\|>|call\|>\Z")
# Surplus closers after a value, and separators of values.
_NOTHING = re.compile(r"[\s}\]),;`]*+")
_NEXT_CALL = re.compile(r"\{\s*+[\"'](?:name|function|tool|type|id|arguments|parameters|args|input|action)")
_NO_SENTENCE = "\"'>|&\\$=+*"
_BLANKS = re.compile(r"[\s;,]*+")


class Payload(Struct):
    """The calls after a token, and where they end. `cut`: the last one is truncated; `whole` counts those before it.

    Of a truncated one the last argument may be incomplete, and it may be missing altogether.

    `guessed`: more text might change an argument. `over`: text inside belongs to no argument.
    """

    end: int
    calls: list[ParsedCall] = field(default_factory=list)
    repaired: bool = False
    cut: bool = False
    guessed: bool = False
    over: bool = False
    whole: int = 0


def skip_blanks(text: str, start: int) -> int:
    """The end of the blanks and separators at `start`."""
    return _BLANKS.match(text, start).end()  # type: ignore[union-attr]


def has_text_before_close(scanner: TextScanner, end: int, *, repaired: bool) -> bool:
    """Whether text follows a value before its close, as if unescaped quotes had ended the value early.

    Without a close, the rest of the line counts; after a value without repairs only if it does not look like prose.
    """
    limit = scanner.search(LIMIT, end)
    stop = limit.start() if limit else len(scanner.text)
    is_closed = limit is not None and _CLOSES.search(limit[0]) is not None
    newline = scanner.text.find("\n", end, stop)
    if newline >= 0 and not (is_closed and repaired):
        is_closed, stop = False, newline
    following = _NOTHING.match(scanner.text, end, stop).end()  # type: ignore[union-attr]
    if following >= stop or _NEXT_CALL.match(scanner.text, following):
        return False
    return is_closed or repaired or scanner.text[following] in _NO_SENTENCE


def read_json(
    scanner: TextScanner, start: int, lenient_chars_max: int = 1_000_000, limit: re.Pattern[str] = LIMIT
) -> ReadValue | None:
    """The value at `start`: valid JSON of any length, or repaired up to the next vendor's token.

    A valid value may contain tokens in its strings; a broken one must not extend into the next call, which begins where
    `limit` matches. Never raises; failed attempts are paid from the budget.
    """
    text = scanner.text
    affordable = scanner.can_spend(start)
    size = _STRICT_CHARS_FIRST if affordable else _STRICT_CHARS_UNPAID
    while True:
        # Without its closer in so much text, a list or an object is not complete: that costs less to see than to read.
        is_open = (
            not affordable
            and len(text) > start + size
            and text.find(_CLOSERS.get(text[start], ""), start, start + size) < 0
        )
        strict = NotStrict.BROKEN if is_open else read_strict(text[start : start + size])
        if isinstance(strict, ReadValue):
            return ReadValue(strict.value, start + strict.end)
        if strict is NotStrict.BROKEN or start + size >= len(text) or not affordable:
            break
        size *= 8
    is_cut = strict is NotStrict.CUT and start + size >= len(text)
    if is_cut and not scanner.final:
        return ReadValue(None, len(text), cut=True)
    found = scanner.search(limit, start)
    if is_cut and affordable and found is not None and _ends_in_string(text, start) and text[found.end() :].strip():
        # The text ends inside a string that contains the token.
        found = None
    end = min(found.start() if found else len(text), start + lenient_chars_max)
    if end >= len(text) and not scanner.final:
        # The end of a broken value is not known yet.
        return ReadValue(None, len(text), cut=True)
    # Nothing may be paid for that depends on how much of the text has come.
    if not scanner.can_spend(start):
        return None
    scanner.spend(len(text) - start if is_cut else ATTEMPT_CHARS)
    read = read_value(text, start, end)
    scanner.spend(LENIENT_COST * ((read.end if read else end) - start) + (read.looked_chars if read else 0))
    return read


def _ends_in_string(text: str, start: int) -> bool:
    balance = BracketBalance()
    return not balance.feed(text[start:]) and balance.is_in_string


def read_arguments(scanner: TextScanner, name: str, start: int, limit: re.Pattern[str] = LIMIT) -> Payload | None:
    """Return the call of `name` whose arguments are the object at `start`, or None. Never raises."""
    read = read_json(scanner, start, limit=limit)
    if read is not None and read.cut and not scanner.final:
        return Payload(read.end, cut=True)
    if read is None or not isinstance(read.value, dict):
        return None
    return Payload(read.end, [(name, read.value)], read.repaired, read.cut, over=read.over)

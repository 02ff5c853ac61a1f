"""What follows an announcement, whatever its notation: calls, and where they end.

Also the two things all notations need: blanks stepped over, and a JSON value read within a limit.
"""

from __future__ import annotations

import re

from msgspec import Struct, field

from turnwright_grammar.find import Balance, Finder
from turnwright_grammar.values import NotStrict, ReadValue, Value, read_strict, read_value

ParsedCall = tuple[str, Value]

# No piece of a call's head is so long that an unfinished text would have to hold more of it to tell what it is.
NAME = r"[A-Za-z_][\w.\-]{0,99}+"
GAP = r"\s{0,64}+"
# Vendors put a namespace before their tags: `minimax:`, `steptml:`, `|DSML|`.
SPACE = r"(?:\w++:|[|\uff5c]DSML[|\uff5c])?"
_STRICT_CHARS_FIRST = 1_000
# The tolerant reader is slower than the strict one, so it pays more from the budget.
LOOSE_COST = 8
LIMIT = re.compile(
    r"</?(?:\w+[:|])?(?:tool_?calls?|tool_?use|function_?calls?)>|<tool_call\|>|<\|/?tool_call[^<>\n]*>"
    r"|<end_function_call>|<\|(?:end_message|action_end|tools_suffix|call|end)\|>|<\|END_ACTION\|>"
    r"|\[TOOL_CALLS\]|<[|\uff5c]tool[\u2581_]calls?[\u2581_](?:begin|end)[|\uff5c]>",
)
_CLOSES = re.compile(r"/|end|END|suffix|<tool_call\|>|call\|>\Z")
# Closers that stand behind a value too often, and what divides values.
_NOTHING = re.compile(r"[\s}\]),;`]*+")
_NEXT_CALL = re.compile(r"\{\s*+[\"'](?:name|function|tool|type|id|arguments|parameters|args|input|action)")
_NO_SENTENCE = "\"'>|&\\$=+*"
_BLANKS = re.compile(r"[\s;,]*+")


class Payload(Struct):
    """What followed a token: calls, where it ended, whether it was repaired or cut off.

    Of a list that is cut, `whole` counts the calls before the one that is.

    `guessed`: an argument is so written that more text might have been read otherwise. `over`: text inside
    belongs to no argument.
    """

    end: int
    calls: list[ParsedCall] = field(default_factory=list)
    repaired: bool = False
    cut: bool = False
    guessed: bool = False
    over: bool = False
    whole: int = 0


def after_blanks(text: str, start: int) -> int:
    """Return where the blanks and separators at `start` end."""
    return _BLANKS.match(text, start).end()  # type: ignore[union-attr]


def has_text_before_close(finder: Finder, end: int, *, repaired: bool) -> bool:
    """Whether text stands between a value that ends at `end` and its close: quotes that nobody escaped end it early.

    Where no close follows, what stands on the line of the value counts; behind a value without repair that may be
    prose, unless it begins like no sentence.
    """
    limit = finder.search(LIMIT, end)
    stop = limit.start() if limit else len(finder.text)
    is_closed = limit is not None and _CLOSES.search(limit[0]) is not None
    newline = finder.text.find("\n", end, stop)
    if newline >= 0 and not (is_closed and repaired):
        is_closed, stop = False, newline
    following = _NOTHING.match(finder.text, end, stop).end()  # type: ignore[union-attr]
    if following >= stop or _NEXT_CALL.match(finder.text, following):
        return False
    return is_closed or repaired or finder.text[following] in _NO_SENTENCE


def read_json(
    finder: Finder, start: int, loose_chars_max: int = 1_000_000, limit: re.Pattern[str] = LIMIT
) -> ReadValue | None:
    """Return the value at `start`: strict JSON of any length, or repaired up to the next vendor's token.

    A strict value may hold tokens inside its strings; a broken one must not run into the next call,
    which begins where `limit` matches. Never raises; what was read in vain is paid from the budget.
    """
    text = finder.text
    size, affordable = _STRICT_CHARS_FIRST, finder.spend(0)
    while True:
        strict = read_strict(text[start : start + size])
        if isinstance(strict, ReadValue):
            return ReadValue(strict.value, start + strict.end)
        if strict is NotStrict.BROKEN or start + size >= len(text) or not affordable:
            break
        size *= 8
    is_cut = strict is NotStrict.CUT and start + size >= len(text)
    if is_cut and not finder.final:
        return ReadValue(None, len(text), cut=True)
    found = finder.search(limit, start)
    if is_cut and found is not None and _ends_in_string(text, start) and text[found.end() :].strip():
        # The end of the text came inside a string that holds the token.
        found = None
    end = min(found.start() if found else len(text), start + loose_chars_max)
    if end >= len(text) and not finder.final:
        # How far a broken value reaches is not known yet.
        return ReadValue(None, len(text), cut=True)
    # Nothing may be paid for that depends on how much of the text has come.
    if not finder.spend(len(text) - start if is_cut else _STRICT_CHARS_FIRST):
        return None
    read = read_value(text, start, end)
    finder.spend(LOOSE_COST * ((read.end if read else end) - start))
    return read


def _ends_in_string(text: str, start: int) -> bool:
    balance = Balance()
    return not balance.comes(text[start:]) and balance.is_in_string


def read_arguments(finder: Finder, name: str, start: int, limit: re.Pattern[str] = LIMIT) -> Payload | None:
    """Return the call of `name` whose arguments are the object at `start`, or None. Never raises."""
    read = read_json(finder, start, limit=limit)
    if read is not None and read.cut and not finder.final:
        return Payload(read.end, cut=True)
    if read is None or not isinstance(read.value, dict):
        return None
    return Payload(read.end, [(name, read.value)], read.repaired, read.cut, over=read.over)

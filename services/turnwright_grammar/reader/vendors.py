"""Calls in vendors' formats in a reply; `dialects` knows the notations.

Each handler gets the reading and where its trigger stands, and returns the offset to go on from. What is
well-formed is settled by the first character after it. What needs repair is settled by the end of the
reply, because more text might have made it well-formed.
"""

from __future__ import annotations

import re

from turnwright_grammar import dialects
from turnwright_grammar.find import Balance, Finder, SearchTrigger
from turnwright_grammar.native import calls_of, tool_name
from turnwright_grammar.reader import invented
from turnwright_grammar.reader.bodies import TAG_SHOWN
from turnwright_grammar.reader.reading import Reading
from turnwright_grammar.values import ReadValue
from turnwright_grammar.values.strict import read_items

# A broken object that no vendor's token announces is not looked for further than this.
BARE_CHARS_MAX = 20_000
# Any notation shows itself within this many characters after its token.
_NOTATION_CHARS_MAX = 256
# A separator may be followed by a word and another separator.
_SEPARATED_CHARS_MAX = 64
_SEPARATORS = re.compile(r"[\s;,]*")
_PYTHON_CALL = re.compile(r"\[\s*(\w+)\(\s*\w+\s*=\s*[\"']")
_OTHERS = ("user", "system", "tool", "function", "developer", "ipython")
_LIST = re.compile(r"(?:\{\s*\"tool_calls\"\s*:\s*)?\[")
_LINE_OR_LIMIT = re.compile(rf"\n|{dialects.LIMIT.pattern}")
_TAG_WAKE = SearchTrigger(
    re.compile(r"</[^<>\s]{0,20}(?:function|invoke|calls?|tool|tool_use|action|input|arguments|parameters|args)>"),
    ">",
)
_OPENING = re.compile(r"(?:[^<\[{]|\[(?:ARGS|CALL_ID|TOOL_CALLS)\]){0,100}[\[{]")


def on_vendor(reading: Reading, found: re.Match[str]) -> int:
    """Read the call that a vendor's token announces; other tokens are noise."""
    token, start = found, found.start()
    if "sep" in token[0] and len(reading.text) < token.end() + _SEPARATED_CHARS_MAX and reading.wait():
        return start
    if not dialects.announces_call(token[0]):
        reading.drop(*token.span())
        return token.end()
    while (following := _token_after(reading, token.end())) and dialects.announces_call(following[0]):
        token = following
    return on_payload(reading, start, token.end())


def _token_after(reading: Reading, position: int) -> re.Match[str] | None:
    return dialects.TOKEN.match(reading.text, _after_blanks(reading, position))


def _after_blanks(reading: Reading, position: int) -> int:
    return _SEPARATORS.match(reading.text, position).end()  # type: ignore[union-attr]


def on_payload(reading: Reading, start: int, position: int) -> int:
    """Read the calls at `position`, announced at `start`."""
    payload = _payload_at(reading, position)
    if not is_settled(reading, payload, position) and reading.wait(wake_at(reading, position)):
        return start
    reading.drop(start, position)
    is_first_cut = start == reading.cut_at
    while payload is not None and payload.calls and not payload.cut:
        reading.take(payload, (start, payload.end))
        start, before = payload.end, position
        if not _goes_on(reading, start):
            return start
        is_first_cut = is_first_cut and _is_certain(reading, payload, before)
        if is_first_cut:
            # The calls of a series are complete one by one.
            reading.whole_to = len(reading.commands)
        position = start
        payload = _payload_at(reading, start)
        if payload is None:
            return position
        if not is_settled(reading, payload, position) and reading.wait(wake_at(reading, position)):
            return start
    if payload is not None and payload.cut:
        return cut_short(reading, payload, start, payload.end)
    return unreadable(reading, start, position)


def cut_short(reading: Reading, payload: dialects.Payload, start: int, end: int) -> int:
    """Report a call that the end of the reply cuts off; those before it in the same list are complete and run."""
    reading.take_whole(payload, (start, end))
    reading.warn("cut_call", "A call was cut off by the end of the reply and not run.", (start, end))
    reading.drop(start, end)
    return end


def _payload_at(reading: Reading, position: int) -> dialects.Payload | None:
    """Return the calls at `position`, None where no notation shows itself in time.

    A reader that waits gives up after so many characters; what comes later must not be read as a call by one that
    has the whole text either.
    """
    payload = dialects.read_payload(reading.finder, position)
    limit = _after_blanks(reading, position) + _NOTATION_CHARS_MAX
    if payload is None or payload.end <= limit:
        return payload
    shown = Finder(reading.text[position:limit], final=False)
    return None if dialects.read_payload(shown, 0) is None else payload


def is_settled(reading: Reading, payload: dialects.Payload | None, position: int) -> bool:
    """Whether no further text can change what was read at `position`."""
    return reading.finder.final or _is_certain(reading, payload, position)


def _is_certain(reading: Reading, payload: dialects.Payload | None, position: int) -> bool:
    if payload is None:
        return len(reading.text) >= _after_blanks(reading, position) + _NOTATION_CHARS_MAX
    if payload.cut or payload.guessed or not payload.calls or not _is_line_shown(reading, payload):
        return False
    return _is_bounded(reading, payload) if payload.repaired else _is_ended(reading, payload)


def _is_line_shown(reading: Reading, payload: dialects.Payload) -> bool:
    """Whether all is there that may show that a risky call was read too short."""
    if not reading.is_risky(payload):
        return True
    return reading.finder.search(_LINE_OR_LIMIT, payload.end) is not None


def _is_ended(reading: Reading, payload: dialects.Payload) -> bool:
    text, end = reading.text, payload.end
    if text.startswith((">", "]", ")"), end - 1):
        # Closed by a mark of its own, so nothing that follows belongs to it.
        return True
    following = _after_blanks(reading, end)
    if not all(arguments for _, arguments in payload.calls):
        return len(text) >= following + _NOTATION_CHARS_MAX
    if text.startswith("<", following):
        return TAG_SHOWN.match(text, following) is not None
    return len(text) >= following + len("```")


def _is_bounded(reading: Reading, payload: dialects.Payload) -> bool:
    # A broken object reaches to the next token at most; where that follows at once, nothing else can come of it.
    text = reading.text
    return text.startswith(("}", "]"), payload.end - 1) and bool(
        dialects.LIMIT.match(text, _after_blanks(reading, payload.end))
    )


def wake_at(reading: Reading, position: int) -> SearchTrigger | Balance | None:
    """What has to come before another look at the payload at `position` is worth it."""
    opening = _OPENING.match(reading.text, position)
    if opening is None:
        is_tag = dialects.FUNCTION_TAG.match(reading.text, _after_blanks(reading, position))
        return _TAG_WAKE if is_tag else None
    balance = Balance()
    # Closed already, and yet unsettled: what follows it decides.
    return None if balance.comes(reading.text[opening.end() - 1 :]) else balance


def _goes_on(reading: Reading, position: int) -> bool:
    # Another object in the same announcement: `{...};{...}`.
    return reading.text.startswith("}", position - 1) and reading.text.startswith("{", _after_blanks(reading, position))


def unreadable(reading: Reading, start: int, position: int) -> int:
    """Say that what was announced at `start` is no call; return `position`, where reading goes on."""
    following = _token_after(reading, position)
    ended = _after_blanks(reading, position) >= len(reading.text)
    if not ended and (following is None or dialects.announces_call(following[0])):
        message = 'A tool call could not be read; write it as a tag, for example <get path="..."/>.'
        reading.warn("unreadable_call", message, (start, position))
    return position


def on_json(reading: Reading, start: int) -> int:
    """Take a JSON object that has the shape of a call, without any token."""
    read = dialects.read_json(reading.finder, start, BARE_CHARS_MAX)
    if read and read.cut and reading.wait(wake_at(reading, start)):
        return start
    if read and not read.cut and isinstance(read.value, dict) and (role := read.value.get("role")) in _OTHERS:
        # What follows a message of the user is the answer to something that nobody said.
        return invented.to_the_end(reading, start) if role == "user" else invented.passed(reading, start, read.end)
    if read and read.cut and (payload := _cut_list(reading, read, start)):
        return cut_short(reading, payload, start, read.end)
    calls = calls_of(read.value, wrapped=False) if read and not read.cut else None
    if read is None and not reading.finder.spend(0):
        reading.warn(
            "unreadable_call", "Too many broken calls came before; this text was not read.", (start, start + 1)
        )
    if read is None or calls is None:
        return start + 1
    payload = dialects.Payload(read.end, calls, read.repaired, over=read.over)
    if not _is_line_shown(reading, payload) and reading.wait():
        return start
    reading.take(payload, (start, read.end))
    return read.end


def _cut_list(reading: Reading, read: ReadValue, start: int) -> dialects.Payload | None:
    """What the end of the reply left of a call, or of a list of calls, that no token announced; None: it is neither."""
    begin = _LIST.match(reading.text, start)
    calls = (calls_of(read_items(reading.text[begin.end() - 1 :]), wrapped=False) or []) if begin else []
    name = read.value.get("name") if isinstance(read.value, dict) and len(read.value) > 1 else None
    if calls and all(tool_name(one, reading.tools) in reading.tools for one, _ in calls):
        return dialects.Payload(read.end, calls, cut=True, whole=len(calls))
    return dialects.Payload(read.end, cut=True) if isinstance(name, str) and name in reading.tools else None


def on_python(reading: Reading, start: int) -> int:
    """Take a list of Python calls, without any token; in a fence it is code."""
    payload = dialects.python_calls(reading.finder, start) if reading.depth == 0 else None
    if payload is not None and not is_settled(reading, payload, start) and reading.wait(wake_at(reading, start)):
        return start
    if payload is not None and payload.cut and payload.whole and payload.calls[0][0] in reading.tools:
        return cut_short(reading, payload, start, payload.end)
    if payload is None or payload.cut:
        if reading.depth == 0 and (found := _PYTHON_CALL.match(reading.text, start)) and found[1] in reading.tools:
            reading.warn("unreadable_call", f"A call of {found[1]} could not be read.", found.span())
        return start + 1
    reading.take(payload, (start, payload.end))
    return payload.end

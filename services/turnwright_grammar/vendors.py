"""Calls in vendors' formats in a reply; `dialects` knows the notations.

Each handler gets the reading and its trigger and returns the offset to go on from.
"""

from __future__ import annotations

import re

from turnwright_grammar import dialects
from turnwright_grammar.native import calls_of
from turnwright_grammar.reading import Reading

# A broken object that no vendor's token announces is not looked for further than this.
_BARE_CHARS_MAX = 20_000
_BLANKS = re.compile(r"\s*")
_SEPARATORS = re.compile(r"[\s;,]*")
_HARMONY_TO = re.compile(r"to=(?P<name>[\w.\-]+)")
_HARMONY_END = re.compile(r"<\|(?:end|start|call|return|channel)\|>")


def on_vendor(reading: Reading, found: re.Match[str]) -> int:
    """Read the call that a vendor's token announces; other tokens are noise."""
    token, start = found, found.start()
    if not dialects.announces_call(token[0]):
        return token.end()
    while (following := _token_after(reading, token.end())) and dialects.announces_call(following[0]):
        token = following
    return on_payload(reading, start, token.end())


def _token_after(reading: Reading, position: int) -> re.Match[str] | None:
    spaces = _BLANKS.match(reading.text, position)
    return dialects.TOKEN.match(reading.text, spaces.end() if spaces else position)


def on_payload(reading: Reading, start: int, position: int) -> int:
    """Read the calls at `position`, announced at `start`."""
    payload = dialects.read_payload(reading.finder, position)
    if payload is None:
        return _unreadable(reading, start, position)
    while True:
        if payload.cut:
            reading.warn("cut_call", "A call was cut off by the end of the reply and not run.", (start, payload.end))
            return payload.end
        if not payload.calls:
            return _unreadable(reading, start, position)
        reading.take(payload, (start, payload.end))
        start = payload.end
        following = dialects.read_payload(reading.finder, start) if _goes_on(reading, start) else None
        if following is None or not following.calls:
            return payload.end
        payload = following


def _goes_on(reading: Reading, position: int) -> bool:
    # Another object in the same announcement: `{...};{...}`.
    spaces = _SEPARATORS.match(reading.text, position)
    return reading.text.startswith("{", spaces.end() if spaces else position)


def _unreadable(reading: Reading, start: int, position: int) -> int:
    following = _token_after(reading, position)
    spaces = _BLANKS.match(reading.text, position)
    ended = spaces is not None and spaces.end() >= len(reading.text)
    if not ended and (following is None or dialects.announces_call(following[0])):
        message = 'A tool call could not be read; write it as a tag, for example <get path="..."/>.'
        reading.warn("unreadable_call", message, (start, position))
    return position


def on_harmony(reading: Reading, found: re.Match[str]) -> int:
    """Read a harmony message: a call, reasoning (stepped over), or what is said."""
    to = _HARMONY_TO.search(found[0])
    if to is None:
        if "analysis" not in found["channel"]:
            return found.end()
        closing = reading.finder.search(_HARMONY_END, found.end())
        return closing.start() if closing else len(reading.text)
    read = dialects.read_json(reading.finder, found.end())
    if read is None or read.cut or not isinstance(read.value, dict):
        return _unreadable(reading, found.start(), found.end())
    reading.take(dialects.Payload(read.end, [(to["name"], read.value)], read.repaired), (found.start(), read.end))
    return read.end


def on_json(reading: Reading, found: re.Match[str]) -> int:
    """Take a JSON object that has the shape of a call, without any token."""
    read = dialects.read_json(reading.finder, found.start(), _BARE_CHARS_MAX)
    calls = calls_of(read.value, wrapped=False) if read and not read.cut else None
    if read is None or calls is None:
        return reading.narrate(found)
    span = (found.start(), read.end)
    reading.take(dialects.Payload(read.end, calls, read.repaired), span)
    return read.end


def on_python(reading: Reading, found: re.Match[str]) -> int:
    """Take a list of Python calls, without any token."""
    payload = dialects.python_calls(reading.finder, found.end() - 1)
    if payload is None or payload.cut:
        return reading.narrate(found)
    reading.take(payload, (found.start(), payload.end))
    return payload.end

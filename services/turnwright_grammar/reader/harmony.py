"""Messages in the harmony format: `<|channel|>commentary to=functions.get <|message|>{...}<|call|>`."""

from __future__ import annotations

import re
from typing import Final

from turnwright_grammar import dialects
from turnwright_grammar.dialects import Payload
from turnwright_grammar.find import SearchTrigger
from turnwright_grammar.reader import vendors
from turnwright_grammar.reader.reading import Reading

HEAD_CHARS_MAX: Final = 400
"""The longest head of a message, from its first token to `<|message|>`."""

_FIRST = re.compile(r"<\|(?:start|channel)\|>")
_HEAD = re.compile(
    r"(?:<\|start\|>[^<]{0,100})?<\|channel\|>(?P<channel>[^<]{0,200})(?:<\|constrain\|>[^<]{0,40})?<\|message\|>"
)
_TO = re.compile(r"to=(?P<name>[\w.\-]+)")
_RECIPIENT = re.compile(
    r"functions\.(?P<name>[\w.\-]{1,100})(?:\s*<\|channel\|>\w+)?\s*(?:<\|constrain\|>)?\s*(?:json|code)?\s*(?:<\|message\|>)?\s*(?=\{)"
)
_END = re.compile(r"<\|(?:end|start|call|return|channel)\|>")


def on_harmony(reading: Reading, start: int) -> int | None:
    """Read a message: a call, reasoning (stepped over), or what is said. None where no message begins."""
    if _FIRST.match(reading.text, start) is None:
        return None
    head = _HEAD.match(reading.text, start)
    if head is None:
        near = len(reading.text) < start + HEAD_CHARS_MAX
        return start if near and reading.wait() else None
    if to := _TO.search(head[0]):
        return _on_call(reading, head, to["name"])
    reading.drop(*head.span())
    return _on_reasoning(reading, head) if "analysis" in head["channel"] else head.end()


def on_recipient(reading: Reading, start: int) -> int:
    """Read a call whose head lost its tokens: `to=functions.get json{...}`; `start` is at the `=`."""
    head = _RECIPIENT.match(reading.text, start + 1)
    if head is None:
        near = len(reading.text) < start + HEAD_CHARS_MAX
        return start if near and reading.wait() else start + 1
    return max(_on_call(reading, head, head["name"]), start + 1)


def _on_reasoning(reading: Reading, head: re.Match[str]) -> int:
    closing = reading.finder.search(_END, head.end())
    if closing is None and reading.wait(SearchTrigger(_END, ">")):
        return head.start()
    end = closing.start() if closing else len(reading.text)
    reading.drop(head.start(), end)
    return end


def _on_call(reading: Reading, head: re.Match[str], name: str) -> int:
    payload = _payload(reading, head.end(), name)
    if not vendors.is_settled(reading, payload, head.end()) and reading.wait(vendors.wake_at(reading, head.end())):
        return head.start()
    if payload is None or not payload.calls:
        reading.drop(*head.span())
        return vendors.unreadable(reading, *head.span())
    reading.take(payload, (head.start(), payload.end))
    return payload.end


def _payload(reading: Reading, position: int, name: str) -> Payload | None:
    read = dialects.read_json(reading.finder, position)
    if read is None:
        return None
    if read.cut or not isinstance(read.value, dict):
        return Payload(read.end, cut=read.cut)
    return Payload(read.end, [(name, read.value)], read.repaired, over=read.over)

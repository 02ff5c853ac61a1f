"""Messages in the harmony format: `<|channel|>commentary to=functions.get <|message|>{...}<|call|>`."""

from __future__ import annotations

import re
from typing import Final

from turnwright_grammar import dialects
from turnwright_grammar.dialects import Payload
from turnwright_grammar.reader import vendors
from turnwright_grammar.reader.parser_state import ParserState
from turnwright_grammar.scanner import SearchTrigger

HEAD_CHARS_MAX: Final = 400
"""Longer than the head of a message, from its first token to `<|message|>`."""

_FIRST = re.compile(r"<\|(?:start|channel)\|>")
_HEAD = re.compile(
    r"(?:<\|start\|>[^<]{0,100})?<\|channel\|>(?P<channel>[^<]{0,200})(?:<\|constrain\|>[^<]{0,40})?<\|message\|>"
)
_TO = re.compile(r"to=(?P<name>[\w.\-]+)")
_RECIPIENT = re.compile(
    r"functions\.(?P<name>[\w.\-]{1,100})(?:\s*<\|channel\|>\w+)?\s*(?:<\|constrain\|>)?\s*(?:json|code)?\s*(?:<\|message\|>)?\s*(?=\{)"
)
_END = re.compile(r"<\|(?:end|start|call|return|channel)\|>")


def on_harmony(state: ParserState, start: int) -> int | None:
    """Handle a message: a call, reasoning (which is skipped), or text; None if no message begins at `start`."""
    if _FIRST.match(state.text, start) is None:
        return None
    head = _HEAD.match(state.text, start)
    if head is None:
        near = len(state.text) < start + HEAD_CHARS_MAX
        return start if near and state.needs_more() else None
    if to := _TO.search(head[0]):
        return _on_call(state, head, to["name"])
    state.skip(*head.span())
    return _on_reasoning(state, head) if "analysis" in head["channel"] else head.end()


def on_recipient(state: ParserState, start: int) -> int:
    """Handle a call whose head lost its tokens: `to=functions.get json{...}`; `start` is at the `=`."""
    head = _RECIPIENT.match(state.text, start + 1)
    if head is None:
        near = len(state.text) < start + HEAD_CHARS_MAX
        return start if near and state.needs_more() else start + 1
    return max(_on_call(state, head, head["name"]), start + 1)


def _on_reasoning(state: ParserState, head: re.Match[str]) -> int:
    closing = state.scanner.search(_END, head.end())
    if closing is None and state.needs_more(SearchTrigger(_END, ">")):
        return head.start()
    end = closing.start() if closing else len(state.text)
    if closing is None and (after := state.end_thought_within(head.end(), end)) is not None:
        return after
    state.skip(head.start(), end)
    return end


def _on_call(state: ParserState, head: re.Match[str], name: str) -> int:
    payload = _payload(state, head.end(), name)
    condition = vendors.resume_condition(state, head.end())
    if not vendors.is_final(state, payload, head.end()) and state.needs_more(condition):
        return head.start()
    if payload is not None and payload.cut:
        return vendors.warn_truncated(state, payload, head.start(), payload.end)
    if payload is None or not payload.calls:
        state.skip(*head.span())
        return vendors.warn_unreadable(state, *head.span())
    return state.add_calls(payload, (head.start(), payload.end))


def _payload(state: ParserState, position: int, name: str) -> Payload | None:
    read = dialects.read_json(state.scanner, position)
    if read is None:
        return None
    if not isinstance(read.value, dict):
        return Payload(read.end, [(name, {})] if read.cut else [], cut=read.cut)
    return Payload(read.end, [(name, read.value)], read.repaired, read.cut, over=read.over)

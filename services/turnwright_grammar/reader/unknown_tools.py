"""Calls of unknown tools, written as tags.

Some models were trained on other agents' tools and write `<read_file><path>a</path></read_file>`.
Such a call is returned as unknown rather than ignored, so that the model gets an error. Prose and
HTML stay text: a call is a name with an underscore around nothing but parameter tags, or any
unknown tag with an attribute that only tools have.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from turnwright_grammar.reader.tags import lex_open
from turnwright_grammar.scanner import TextScanner

# Names are shorter than the lookahead of `bodies.WHOLE_TAG`.
_PARAMETRIC = re.compile(r"<(?=\w{1,100}>)(?P<name>[a-z][a-z0-9]*(?:_[a-z0-9]+)+)>")
_BEFORE_PARAMETER = re.compile(r"\s*(?:<(?:[a-z]\w*)?)?")
_OPENING = re.compile(r"<(?P<name>[A-Za-z][\w.\-]{0,99})(?=\s)")
_PARAMETER = re.compile(r"\s*<(?P<name>[a-z]\w*)>")
_TYPICAL_ATTRIBUTES = frozenset({"path", "command", "query", "file_path"})
# A tag around one of these is a wrapper; the call inside counts.
_CALLS = frozenset({"tool_call", "tool_calls", "tool_use", "function_call", "function_calls", "function", "invoke"})
_KEEPS_BLANKS = frozenset({"content", "diff", "body", "text"})
_VALUES_TRIED_MAX = 50
_UNCLOSED_CHARS_MAX = 20_000


class UnknownCall(Struct, frozen=True):
    """The call of an unknown tool: `closed` is false if its end was not found, `settled` if it needs more lookahead."""

    name: str
    attributes: dict[str, str]
    end: int
    closed: bool = True
    body: str = ""
    settled: bool = True


def read_unknown_call(scanner: TextScanner, start: int, tools: frozenset[str]) -> UnknownCall | None:
    """The call of an unknown tool at `start`; None for text and for a tag around one of our `tools`. Never raises."""
    if found := _PARAMETRIC.match(scanner.text, start):
        return _parametric(scanner, found, tools)
    return _attribute_form(scanner, start)


def _parametric(scanner: TextScanner, opening: re.Match[str], tools: frozenset[str]) -> UnknownCall | None:
    text, name = scanner.text, opening["name"]
    if _PARAMETER.match(text, opening.end()) is None:
        before = _BEFORE_PARAMETER.match(text, opening.end())
        if scanner.final or (before and before.end() < len(text)):
            return None
        return UnknownCall(name, {}, opening.end(), settled=False)
    is_affordable = scanner.can_spend(opening.end())
    closing = _close_after(scanner, name, opening.end())
    if closing is None and not scanner.final:
        return UnknownCall(name, {}, opening.end(), closed=False)
    end = closing.start() if closing else min(len(text), opening.end() + _UNCLOSED_CHARS_MAX)
    attributes = read_parameters(text[opening.end() : end]) if is_affordable else None
    if attributes is None or not attributes.keys().isdisjoint(tools | _CALLS):
        scanner.spend(end - opening.end())
        return None
    return UnknownCall(name, attributes, closing.end() if closing else end, closing is not None)


def read_parameters(content: str) -> dict[str, str] | None:
    """Return `<a>1</a><b>2</b>` as a dictionary, or None when `content` is anything else."""
    attributes: dict[str, str] = {}
    position = 0
    content = content.rstrip()
    while position < len(content):
        opening = _PARAMETER.match(content, position)
        if opening is None:
            return None
        end = _value_end(content, opening)
        if end is None:
            return None
        attributes[opening["name"]] = _value(opening["name"], content[opening.end() : end])
        position = end + len(opening["name"]) + 3
    return attributes or None


def _value_end(content: str, opening: re.Match[str]) -> int | None:
    # A close counts only before another parameter or the end: a value may contain its own close.
    closing = f"</{opening['name']}>"
    end = content.find(closing, opening.end())
    for _ in range(_VALUES_TRIED_MAX):
        if end < 0:
            return None
        after = end + len(closing)
        if after >= len(content) or _PARAMETER.match(content, after):
            return end
        end = content.find(closing, after)
    return None


def _value(name: str, raw: str) -> str:
    return raw.removeprefix("\n") if name in _KEEPS_BLANKS else raw.strip()


def _attribute_form(scanner: TextScanner, start: int) -> UnknownCall | None:
    found = _OPENING.match(scanner.text, start)
    if found is None:
        return None
    tag = lex_open(scanner.text, start, found["name"], found.end())
    # `a<b then` is text, whatever follows.
    if tag.touched and not scanner.final and (tag.repaired or not tag.junk):
        return UnknownCall(tag.name, {}, tag.end, settled=False)
    if not tag.complete or not _TYPICAL_ATTRIBUTES & tag.attributes.keys() or tag.junk:
        return None
    if tag.kind == "self":
        return UnknownCall(tag.name, tag.attributes, tag.end)
    closing = _close_after(scanner, tag.name, tag.end)
    if closing is None:
        return UnknownCall(tag.name, tag.attributes, tag.end, closed=False)
    return UnknownCall(tag.name, tag.attributes, closing.end(), body=scanner.text[tag.end : closing.start()])


def _close_after(scanner: TextScanner, name: str, start: int) -> re.Match[str] | None:
    # Searches for many different names are not amortized, so a failed one is paid from the budget.
    closing = scanner.search(_closing(name), start) if scanner.can_spend(start) else None
    if closing is None:
        scanner.spend(_UNCLOSED_CHARS_MAX)
    return closing


@lru_cache(maxsize=256)
def _closing(name: str) -> re.Pattern[str]:
    return re.compile(rf"</{re.escape(name)}\s*>")

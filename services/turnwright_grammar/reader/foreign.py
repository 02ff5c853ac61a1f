"""Calls of tools that are not ours, written as tags.

Some models were trained on other agents' tools and write `<read_file><path>a</path></read_file>`.
Such a call is returned as unknown rather than ignored, so that the model hears about it. Prose and
HTML stay text: a foreign call is a name with an underscore around nothing but parameter tags, or any
unknown tag with an attribute that only tools have.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from turnwright_grammar.find import Finder
from turnwright_grammar.reader.tags import lex_open

# No name is so long that what is shown of an unfinished tag (`bodies.TAG_SHOWN`) does not hold it.
_PARAMETRIC = re.compile(r"<(?=\w{1,100}>)(?P<name>[a-z][a-z0-9]*(?:_[a-z0-9]+)+)>")
_BEFORE_PARAMETER = re.compile(r"\s*(?:<(?:[a-z]\w*)?)?")
_OPENING = re.compile(r"<(?P<name>[A-Za-z][\w.\-]{0,99})(?=\s)")
_PARAMETER = re.compile(r"\s*<(?P<name>[a-z]\w*)>")
_TYPICAL_ATTRIBUTES = frozenset({"path", "command", "query", "file_path"})
# Around one of these it is a wrapper, and the call inside is what counts.
_CALLS = frozenset({"tool_call", "tool_calls", "tool_use", "function_call", "function_calls", "function", "invoke"})
_KEEPS_BLANKS = frozenset({"content", "diff", "body", "text"})
_VALUES_TRIED_MAX = 50
_UNCLOSED_CHARS_MAX = 20_000


class ForeignCall(Struct, frozen=True):
    """An unknown tool's call as tags: `closed` is false when its end was not found.

    `settled` is false when the text ended before it was clear whether this is a call at all.
    """

    name: str
    attributes: dict[str, str]
    end: int
    closed: bool = True
    body: str = ""
    settled: bool = True


def read_foreign(finder: Finder, start: int, tools: frozenset[str]) -> ForeignCall | None:
    """Return the foreign call that opens at `start`, or None when it is text: around our `tools`, it is none.

    Never raises.
    """
    if found := _PARAMETRIC.match(finder.text, start):
        return _parametric(finder, found, tools)
    return _attribute_form(finder, start)


def _parametric(finder: Finder, opening: re.Match[str], tools: frozenset[str]) -> ForeignCall | None:
    text, name = finder.text, opening["name"]
    if _PARAMETER.match(text, opening.end()) is None:
        before = _BEFORE_PARAMETER.match(text, opening.end())
        if finder.final or (before and before.end() < len(text)):
            return None
        return ForeignCall(name, {}, opening.end(), settled=False)
    closing = _close_after(finder, name, opening.end())
    if closing is None and not finder.final:
        return ForeignCall(name, {}, opening.end(), closed=False)
    end = closing.start() if closing else min(len(text), opening.end() + _UNCLOSED_CHARS_MAX)
    attributes = read_parameters(text[opening.end() : end]) if finder.spend(0) else None
    if attributes is None or not attributes.keys().isdisjoint(tools | _CALLS):
        finder.spend(end - opening.end())
        return None
    return ForeignCall(name, attributes, closing.end() if closing else end, closing is not None)


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
    # A close counts when another parameter or the end follows: a value may hold its own close.
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


def _attribute_form(finder: Finder, start: int) -> ForeignCall | None:
    found = _OPENING.match(finder.text, start)
    if found is None:
        return None
    tag = lex_open(finder.text, start, found["name"], found.end())
    if tag.touched and not finder.final:
        return ForeignCall(tag.name, {}, tag.end, settled=False)
    if not tag.complete or not _TYPICAL_ATTRIBUTES & tag.attributes.keys() or tag.junk:
        return None
    if tag.kind == "self":
        return ForeignCall(tag.name, tag.attributes, tag.end)
    closing = _close_after(finder, tag.name, tag.end)
    if closing is None:
        return ForeignCall(tag.name, tag.attributes, tag.end, closed=False)
    return ForeignCall(tag.name, tag.attributes, closing.end(), body=finder.text[tag.end : closing.start()])


def _close_after(finder: Finder, name: str, start: int) -> re.Match[str] | None:
    # Searches for many different names are not amortised; what fails is paid for.
    closing = finder.search(_closing(name), start) if finder.budget_chars > 0 else None
    if closing is None:
        finder.spend(_UNCLOSED_CHARS_MAX)
    return closing


@lru_cache(maxsize=256)
def _closing(name: str) -> re.Pattern[str]:
    return re.compile(rf"</{re.escape(name)}\s*>")

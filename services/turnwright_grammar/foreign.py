"""Calls of tools that are not ours, written as tags.

Some models were trained on other agents' tools and write `<read_file><path>a</path></read_file>`.
Such a call is returned as unknown rather than ignored, so that the model hears about it. Prose and
HTML stay text: a foreign call is a name with an underscore around nothing but parameter tags, or any
unknown tag with an attribute that only tools have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from turnwright_grammar.find import Finder
from turnwright_grammar.tags import lex_at

_PARAMETRIC = re.compile(r"<(?P<name>[a-z][a-z0-9]*(?:_[a-z0-9]+)+)>(?=\s*<[a-z]\w*>)")
_OPENING = re.compile(r"<(?P<name>[A-Za-z][\w.\-]*)(?=\s)")
_PARAMETER = re.compile(r"\s*<(?P<name>[a-z]\w*)>")
_TELLING = frozenset({"path", "command", "query", "file_path"})
_KEEPS_BLANKS = frozenset({"content", "diff", "body", "text"})
_VALUES_TRIED_MAX = 50


@dataclass(frozen=True, slots=True)
class ForeignCall:
    """An unknown tool's call as tags: `closed` is false when its end was never written."""

    name: str
    attributes: dict[str, str]
    end: int
    closed: bool = True
    body: str = ""


def read_foreign(finder: Finder, start: int) -> ForeignCall | None:
    """Return the foreign call that opens at `start`, or None when it is text. Never raises."""
    text = finder.text
    if found := _PARAMETRIC.match(text, start):
        closing = finder.search(_closing(found["name"]), found.end())
        end = closing.start() if closing else len(text)
        attributes = read_parameters(text[found.end() : end])
        if attributes is None:
            return None
        return ForeignCall(found["name"], attributes, closing.end() if closing else end, closing is not None)
    return _telling(finder, start)


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


def _telling(finder: Finder, start: int) -> ForeignCall | None:
    found = _OPENING.match(finder.text, start)
    if found is None:
        return None
    tag = lex_at(finder.text, start, found.end())
    if not tag.complete or not _TELLING & tag.attributes.keys() or tag.junk:
        return None
    if tag.kind == "self":
        return ForeignCall(tag.name, tag.attributes, tag.end)
    closing = finder.search(_closing(tag.name), tag.end)
    if closing is None:
        return ForeignCall(tag.name, tag.attributes, tag.end, closed=False)
    return ForeignCall(tag.name, tag.attributes, closing.end(), body=finder.text[tag.end : closing.start()])


def _closing(name: str) -> re.Pattern[str]:
    return re.compile(rf"</{re.escape(name)}\s*>")

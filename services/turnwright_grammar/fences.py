"""Code in a reply: inline spans, fences, and conflict blocks.

Each handler gets the reading and its trigger and returns the offset to go on from.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from turnwright_grammar import conflicts, dialects
from turnwright_grammar.find import Finder
from turnwright_grammar.reading import Fenced, Reading
from turnwright_grammar.reply import Command, Span

FENCE_DEPTH_MAX = 2
_NEWLINE = re.compile(r"\n")
_FIRING_INFO = re.compile(r"\s*(?:tool_code|tool_call|tool|function_call)\b", re.IGNORECASE)
_DIFF_INFO = re.compile(r"\s*(?:diff|patch|udiff)\b", re.IGNORECASE)


def on_ticks(reading: Reading, found: re.Match[str]) -> int:
    """Step over an inline code span; a lone backtick is text. Source: RU286, C25."""
    marks = found["ticks"]
    closing = reading.finder.search(_run_of(len(marks)), found.end())
    newline = reading.finder.search(_NEWLINE, found.end())
    if closing is None or (newline is not None and newline.start() < closing.start()):
        return reading.narrate(found)
    inside = reading.text[found.end() : closing.start()].strip()
    if not (inside.startswith("<") and inside.endswith(">")):
        reading.warn_inert(found.end(), closing.start(), "an inline code span")
    reading.narration.append(reading.text[found.start() : closing.end()])
    return closing.end()


def on_fence(reading: Reading, found: re.Match[str]) -> int:
    """Judge a code fence as a whole: run it, put it off, or leave it as text. Source: C25."""
    if reading.fence is not None:
        if reading.fence.match(found[0]):
            reading.fence = None
        return found.end()
    closing_line = _fence_end(found["marks"])
    start = min(found.end() + 1, len(reading.text))
    closing = reading.finder.search(closing_line, start)
    content_end, end = (closing.start(), closing.end()) if closing else (len(reading.text), len(reading.text))
    head = reading.finder.search(conflicts.HEAD, start)
    if head is not None and head.start() < content_end:
        reading.fence = closing_line
        return found.end()
    content = reading.text[start:content_end]
    if not _fires(reading, found["info"], content, start, (found.start(), end)):
        reading.narration.append(reading.text[found.start() : end])
    return end


def _fires(reading: Reading, info: str, content: str, start: int, span: Span) -> bool:
    """Whether the fence was taken as calls; it may have been put off until the end."""
    if reading.depth >= FENCE_DEPTH_MAX:
        return False
    if (_DIFF_INFO.match(info) or content.startswith("--- ")) and _fires_diff(reading, content, span):
        return True
    inner = reading.nested(content, start)
    if _FIRING_INFO.match(info):
        _read_tool_code(reading, inner, content, start)
    elif not inner.commands or "".join(inner.narration).strip():
        return False
    elif inner.natives < len(inner.commands):
        reading.deferred.append(Fenced(inner.commands, span))
        return False
    reading.adopt(inner)
    return True


def _read_tool_code(reading: Reading, inner: Reading, content: str, start: int) -> None:
    if inner.commands:
        return
    payload = dialects.read_payload(Finder(content), 0)
    if payload and payload.calls and not payload.cut:
        inner.take(payload, (0, payload.end))
    else:
        reading.warn("unreadable_call", "A tool_code fence held no call that could be read.", (start, start))


def _fires_diff(reading: Reading, content: str, span: Span) -> bool:
    edits = conflicts.read_diff(content)
    for edit in edits:
        name = "rm" if edit.body is None else "set"
        known = name in reading.tools
        attributes = MappingProxyType({"path": edit.path})
        reading.add(Command(name, attributes, edit.body or "", span, known))
        reading.natives += 1
    return bool(edits)


def on_conflict(reading: Reading, found: re.Match[str]) -> int:
    """Take a conflict block with a file name as a `set`. Source: C25."""
    block = conflicts.read_block(reading.finder, found)
    if isinstance(block, conflicts.BadBlock):
        reading.warn("conflict_block", f"An edit block was not applied: {block.message}.", found.span())
        reading.narration.append(reading.text[found.start() : block.end])
        return block.end
    reading.path = conflicts.path_before(reading.text, found.start()) or reading.path
    span = (found.start(), block.end)
    if reading.path is None:
        message = "An edit block has no file name on the line before it; use <set path=...>."
        reading.warn("conflict_without_path", message, span)
        reading.narration.append(reading.text[found.start() : block.end])
        return block.end
    body = conflicts.marker_body([(block.search, block.replace)])
    reading.add(Command("set", MappingProxyType({"path": reading.path}), body, span, "set" in reading.tools))
    reading.natives += 1
    return block.end


def on_tail(reading: Reading, found: re.Match[str]) -> int:
    """Report the end of an edit block that never began."""
    reading.warn("conflict_block", "`>>>>>>> REPLACE` ends no edit block; the edit was not applied.", found.span())
    return reading.narrate(found)


def _run_of(length: int) -> re.Pattern[str]:
    return re.compile(rf"(?<!`)`{{{min(length, 100)}}}(?!`)")


def _fence_end(marks: str) -> re.Pattern[str]:
    return re.compile(rf"^[ \t]*(?:>[ \t]*)?{marks[0]}{{{min(len(marks), 100)},}}[ \t\r]*$", re.MULTILINE)

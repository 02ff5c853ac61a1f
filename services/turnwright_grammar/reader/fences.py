"""Code in a reply: inline spans, fences, conflict blocks and patches.

Each handler gets the reading and where its trigger stands, and returns the offset to go on from.
"""

from __future__ import annotations

import re
from functools import lru_cache

from turnwright_grammar import dialects
from turnwright_grammar.edits import conflicts, diffs
from turnwright_grammar.find import Finder, SearchTrigger
from turnwright_grammar.reader import vendors
from turnwright_grammar.reader.reading import Reading
from turnwright_grammar.reader.tags import INDENT_CHARS_MAX, begins_line
from turnwright_grammar.reply import Span

FENCE_DEPTH_MAX = 2
_NEWLINE = re.compile(r"\n")
_SHORT_SPAN = re.compile(r"(?<!`)`([^`\n]++)`(?!`)")
_TICKS = re.compile(r"`+")
LINE_WAKE = SearchTrigger(_NEWLINE, "\n")
_FENCE_WAKE = SearchTrigger(re.compile(r"[`~<](?:(?<=`)``|(?<=~)~~|(?<=<)<{4} ?SEARCH>?)[ \t\r]*\n"), "\n")
_BLOCK_WAKE = SearchTrigger(re.compile(r"[<>]{5} ?(?:SEARCH>?|REPLACE)[ \t\r]*\n"), "\n")
_FENCE_START = re.compile(r"(?:[ \t]*>)?[ \t]*\Z")
_MARKS = re.compile(r"(?P<marks>`{3,}|~{3,})(?P<info>[^\n]*)(?P<newline>\n?)")
_PATCH_BEGIN = re.compile(r"(?:\s*apply_patch[^\n]*\n)?\s*(?=\*\*\* Begin Patch)")
_PATCH_END = re.compile(r"^[ \t]*\*\*\* End Patch[ \t\r]*$", re.MULTILINE)
_PATCH_WAKE = SearchTrigger(re.compile(r"\*\*\* End Patch[ \t\r]*\n"), "\n")
_FIRING_INFO = re.compile(r"\s*(?:tool_code|tool_call|tool|function_call)\b", re.IGNORECASE)
_RESULT_INFO = re.compile(
    r"\s*(?:(?:tool|function)[_-]?)?(?:outputs?|results?|responses?|observation)\b", re.IGNORECASE
)
_DIFF_INFO = re.compile(r"\s*(?:diff|patch|udiff)\b", re.IGNORECASE)


def on_marks(reading: Reading, start: int) -> int:
    """Take backticks or tildes as a fence where they begin a line, else as a code span. Source: RU286, C25."""
    opening = _fence_at(reading.text, start)
    if opening is None:
        return _on_ticks(reading, start)
    if not opening["newline"] and reading.wait(LINE_WAKE):
        return start
    return _on_fence(reading, opening)


def _fence_at(text: str, start: int) -> re.Match[str] | None:
    if not text.startswith(("```", "~~~"), start):
        return None
    low = max(0, start - INDENT_CHARS_MAX)
    line = text.rfind("\n", low, start) + 1
    if (line == 0 and low > 0) or _FENCE_START.match(text, line, start) is None:
        return None
    # Only now: the rest of the line may be long, and marks in the middle of it many.
    opening = _MARKS.match(text, start)
    return None if opening is None or "`" in opening["info"] else opening


def _on_ticks(reading: Reading, start: int) -> int:
    """Step over an inline code span; a lone backtick is text, and so is a tilde."""
    text = reading.text
    short = _SHORT_SPAN.match(text, start)
    if short and (short.end() < len(text) or reading.finder.final):
        return _stepped_over(reading, short.start(1), short.end(1), short.end())
    marks = _TICKS.match(text, start)
    if marks is None:
        return start + 1
    end = marks.end()
    closing = reading.finder.search(_run_of(end - start), end)
    newline = reading.finder.search(_NEWLINE, end)
    if newline is not None and (closing is None or newline.start() < closing.start()):
        return end
    if closing is None:
        reading.wait()
        return end
    if closing.end() >= len(text) and reading.wait():
        return end
    return _stepped_over(reading, end, closing.start(), closing.end())


def _stepped_over(reading: Reading, start: int, stop: int, end: int) -> int:
    if "<" in reading.text[start:stop]:
        inside = reading.text[start:stop].strip()
        if not (inside.startswith("<") and inside.endswith(">")):
            reading.warn_inert(start, stop, "an inline code span")
    return end


def _on_fence(reading: Reading, opening: re.Match[str]) -> int:
    """Judge a code fence as a whole: run it, put it off, or leave it as text. Source: C25."""
    begin = reading.text.rfind("\n", 0, opening.start()) + 1
    if reading.fence is not None:
        return _in_fence(reading, opening, begin)
    closing_line = _fence_end(opening["marks"][0], min(len(opening["marks"]), 100))
    start = opening.end()
    closing = reading.finder.search(closing_line, start)
    content_end, end = (closing.start(), closing.end()) if closing else (len(reading.text), len(reading.text))
    head = reading.finder.search(conflicts.HEAD, start)
    if head is not None and head.start() < content_end and head.end() < len(reading.text):
        reading.fence = closing_line
        reading.drop(begin, start)
        return start
    if end >= len(reading.text) and reading.wait(_FENCE_WAKE):
        return begin
    if _fires(reading, opening["info"], reading.text[start:content_end], start, (begin, end)):
        reading.drop(begin, end)
    return end


def _in_fence(reading: Reading, opening: re.Match[str], begin: int) -> int:
    # Inside a fence that holds conflict blocks only its own end counts.
    end = opening.end() - len(opening["newline"])
    if reading.fence is not None and reading.fence.match(reading.text, begin):
        reading.fence = None
        reading.drop(begin, end)
    return end


def _fires(reading: Reading, info: str, content: str, start: int, span: Span) -> bool:
    """Whether the fence was taken as calls; it may have been put off until the end."""
    if reading.depth >= FENCE_DEPTH_MAX or _RESULT_INFO.match(info):
        reading.warn_inert(start, start + len(content), "a fence")
        return False
    if _fires_diff(reading, info, content, span):
        return True
    if _FIRING_INFO.match(info):
        return _fires_tool_code(reading, content, start)
    inner = reading.nested(content, start)
    if not inner.commands or inner.narration().strip():
        reading.warnings.extend(warning for warning in inner.warnings if warning.kind == "arguments_left_over")
        return False
    if inner.natives < len(inner.commands):
        reading.defer(inner.commands, span)
        return False
    reading.adopt(inner)
    return True


def _fires_tool_code(reading: Reading, content: str, start: int) -> bool:
    # Strings in a call are data, so the whole is tried as calls before tags are looked for in it.
    payload = dialects.read_payload(Finder(content), 0)
    if payload and payload.calls and not payload.cut and not content[payload.end :].strip():
        reading.take(payload, (start, start + payload.end))
        return True
    if payload and payload.cut and payload.whole:
        vendors.cut_short(reading, payload, start, start + payload.end)
        return True
    inner = reading.nested(content, start)
    if inner.commands:
        reading.adopt(inner)
    elif payload and payload.calls and not payload.cut:
        reading.take(payload, (start, start + payload.end))
    else:
        reading.warn("unreadable_call", "A tool_code fence held no call that could be read.", (start, start))
    return True


def _fires_diff(reading: Reading, info: str, content: str, span: Span) -> bool:
    """Take a diff or a patch that names its files."""
    begin = _PATCH_BEGIN.match(content)
    patch = diffs.read_apply_patch(content, begin.end()) if begin else None
    if patch is not None:
        edits = patch[0]
    elif _DIFF_INFO.match(info) or content.startswith(("--- ", "diff --git ")):
        edits = diffs.read_diff(content)
    else:
        return False
    _take_edits(reading, edits, span)
    return bool(edits)


def on_patch(reading: Reading, start: int) -> int:
    """Take an `apply_patch` text that stands bare in a reply. Source: C25."""
    if not begins_line(reading.text, start):
        return start + 1
    ending = reading.finder.search(_PATCH_END, start)
    if (ending is None or ending.end() >= len(reading.text)) and reading.wait(_PATCH_WAKE):
        return start
    begin = reading.text.rfind("\n", 0, start) + 1
    patch = diffs.read_apply_patch(reading.text, begin)
    if patch is None:
        return start + 1
    edits, end = patch
    _take_edits(reading, edits, (begin, end))
    reading.drop(begin, end)
    return end


def _take_edits(reading: Reading, edits: list[diffs.PatchedFile], span: Span) -> None:
    for edit in edits:
        if edit.body is None:
            reading.add("rm", {"path": edit.path}, "", span)
        elif edit.body:
            reading.add("set", {"path": edit.path}, edit.body, span)
        if edit.moved_to is not None:
            reading.add("mv", {"path": edit.path, "to": edit.moved_to}, "", span)
    reading.natives += len(edits)


def on_conflict(reading: Reading, found: re.Match[str]) -> int:
    """Take a conflict block with a file name as a `set`. Source: C25."""
    if not conflicts.is_settled(reading.finder, found) and reading.wait(_BLOCK_WAKE):
        return found.start()
    block = conflicts.read_block(reading.finder, found)
    span = (found.start(), block.end)
    if isinstance(block, conflicts.BadBlock):
        reading.warn("conflict_block", f"An edit block was not applied: {block.message}.", found.span())
        return block.end
    path = conflicts.path_before(reading.text, found.start())
    if path is None and reading.path and conflicts.goes_on(reading.text, reading.path_end, found.start()):
        path = reading.path
    reading.path, reading.path_end = path, block.end
    if path is None:
        message = "An edit block has no file name on the line before it; use <set path=...>."
        reading.warn("conflict_without_path", message, span)
        return block.end
    reading.add("set", {"path": path}, reading.text[slice(*span)], span)
    reading.natives += 1
    reading.drop(*span)
    return block.end


def on_tail(reading: Reading, found: re.Match[str]) -> int:
    """Report the end of an edit block that never began."""
    if found.end() >= len(reading.text) and reading.wait(LINE_WAKE):
        return found.start()
    reading.warn("conflict_block", "`>>>>>>> REPLACE` ends no edit block; the edit was not applied.", found.span())
    return found.end()


@lru_cache(maxsize=128)
def _run_of(length: int) -> re.Pattern[str]:
    return re.compile(rf"(?<!`)`{{{min(length, 100)}}}(?!`)")


@lru_cache(maxsize=256)
def _fence_end(mark: str, length: int) -> re.Pattern[str]:
    return re.compile(rf"^[ \t]*(?:>[ \t]*)?{mark}{{{length},}}[ \t\r]*$", re.MULTILINE)

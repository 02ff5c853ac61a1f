"""Handlers for code: inline spans, fences, conflict blocks and patches.

Each gets the state and the offset of its trigger, and returns the offset to continue at.
"""

from __future__ import annotations

import re
from functools import lru_cache
from types import MappingProxyType

from turnwright_grammar import dialects
from turnwright_grammar.edits import conflicts, diffs
from turnwright_grammar.reader import vendors
from turnwright_grammar.reader.parser_state import INERT_FENCE, ParserState
from turnwright_grammar.reader.tags import INDENT_CHARS_MAX, begins_line
from turnwright_grammar.reply import Command, Span
from turnwright_grammar.scanner import SearchTrigger, TextScanner

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


def on_marks(state: ParserState, start: int) -> int:
    """Handle backticks or tildes: at the start of a line a fence, else a code span. Source: RU286, C25."""
    opening = _fence_at(state.text, start)
    if opening is None:
        return _on_code_span(state, start)
    if not opening["newline"] and state.needs_more(LINE_WAKE):
        return start
    return _on_fence(state, opening)


def _fence_at(text: str, start: int) -> re.Match[str] | None:
    if not text.startswith(("```", "~~~"), start):
        return None
    low = max(0, start - INDENT_CHARS_MAX)
    line = text.rfind("\n", low, start) + 1
    if (line == 0 and low > 0) or _FENCE_START.match(text, line, start) is None:
        return None
    # Last, because the rest of the line may be long and contain many such marks.
    opening = _MARKS.match(text, start)
    return None if opening is None or "`" in opening["info"] else opening


def _on_code_span(state: ParserState, start: int) -> int:
    """Skip an inline code span; a lone backtick is text, and so is a tilde."""
    text = state.text
    short = _SHORT_SPAN.match(text, start)
    if short and (short.end() < len(text) or state.scanner.final):
        return _skip_code_span(state, short.start(1), short.end(1), short.end())
    marks = _TICKS.match(text, start)
    if marks is None:
        return start + 1
    end = marks.end()
    closing = state.scanner.search(_backtick_run(end - start), end)
    newline = state.scanner.search(_NEWLINE, end)
    if newline is not None and (closing is None or newline.start() < closing.start()):
        return end
    if closing is None:
        state.needs_more()
        return end
    if closing.end() >= len(text) and state.needs_more():
        return end
    return _skip_code_span(state, end, closing.start(), closing.end())


def _skip_code_span(state: ParserState, start: int, stop: int, end: int) -> int:
    if "<" in state.text[start:stop]:
        inside = state.text[start:stop].strip()
        if not (inside.startswith("<") and inside.endswith(">")):
            state.warn_inert(start, stop, "an inline code span")
    return end


def _on_fence(state: ParserState, opening: re.Match[str]) -> int:
    """Handle a whole code fence: add its commands, defer them, or leave it as text. Source: C25."""
    begin = state.text.rfind("\n", 0, opening.start()) + 1
    if state.fence is not None:
        return _in_fence(state, opening, begin)
    closing_line = _fence_end(opening["marks"][0], min(len(opening["marks"]), 100))
    start = opening.end()
    closing = state.scanner.search(closing_line, start)
    content_end, end = (closing.start(), closing.end()) if closing else (len(state.text), len(state.text))
    head = state.scanner.search(conflicts.HEAD, start)
    if head is not None and head.start() < content_end and head.end() < len(state.text):
        state.fence = closing_line
        state.skip(begin, start)
        return start
    if end >= len(state.text) and state.needs_more(_FENCE_WAKE):
        return begin
    if closing is None and (after := state.end_thought_within(start, end)) is not None:
        return after
    if _add_calls(state, opening["info"], state.text[start:content_end], start, (begin, end)):
        state.skip(begin, end)
    return end


def _in_fence(state: ParserState, opening: re.Match[str], begin: int) -> int:
    # Inside a fence that holds conflict blocks only its own end counts.
    end = opening.end() - len(opening["newline"])
    if state.fence is not None and state.fence.match(state.text, begin):
        state.fence = None
        state.skip(begin, end)
    return end


def on_thought_end(state: ParserState, start: int) -> int:
    """Handle the close of a thought in a fence that holds conflict blocks: it counts if the fence is never closed."""
    if state.fence is None or state.scanner.search(state.fence, start) or state.needs_more(_FENCE_WAKE):
        return start + 1
    return state.end_thought_within(start, len(state.text)) or start + 1


def _add_calls(state: ParserState, info: str, content: str, start: int, span: Span) -> bool:
    """Add the calls in a fence; returns whether there were any."""
    if state.depth >= FENCE_DEPTH_MAX or _RESULT_INFO.match(info):
        state.warn_inert(start, start + len(content), "a fence")
        return False
    if _add_diff_edits(state, info, content, span):
        return True
    if _FIRING_INFO.match(info):
        return _add_tool_code_calls(state, content, start)
    inner = state.parse_nested(content, start, is_code=True)
    if not inner.commands or inner.narration()[0]:
        state.warnings.extend(
            warning for warning in inner.warnings if warning.kind == "arguments_left_over" or warning.ignored
        )
        fenced = (command for each in inner.deferred for command in each.commands)
        if ignored := sum(command.known for command in (*inner.commands, *fenced)):
            state.warn(*INERT_FENCE, span, ignored)
        return False
    if inner.native_calls < len(inner.commands):
        state.defer(inner.commands, span)
        return False
    state.merge(inner)
    return True


def _add_tool_code_calls(state: ParserState, content: str, start: int) -> bool:
    # Calls first, tags only if there are none: strings in a call are data.
    payload = dialects.read_payload(TextScanner(content), 0)
    if payload and payload.calls and not payload.cut and not content[payload.end :].strip():
        state.add_calls(payload, (start, start + payload.end))
        return True
    if payload and payload.cut and payload.whole:
        vendors.warn_truncated(state, payload, start, start + payload.end)
        return True
    inner = state.parse_nested(content, start, is_code=True)
    if inner.commands:
        state.merge(inner)
    elif payload and payload.calls and not payload.cut:
        state.add_calls(payload, (start, start + payload.end))
    else:
        state.warn("unreadable_call", "A tool_code fence held no call that could be read.", (start, start))
    return True


def _add_diff_edits(state: ParserState, info: str, content: str, span: Span) -> bool:
    """Add the edits of a diff or patch that names its files; returns whether there were any."""
    begin = _PATCH_BEGIN.match(content)
    patch = diffs.read_apply_patch(content, begin.end()) if begin else None
    if patch is not None:
        edits = patch[0]
    elif _DIFF_INFO.match(info) or content.startswith(("--- ", "diff --git ")):
        edits = diffs.read_diff(content)
    else:
        return False
    _add_edits(state, edits, span)
    return bool(edits)


def on_patch(state: ParserState, start: int) -> int:
    """Handle an `apply_patch` text outside of a fence. Source: C25."""
    if not begins_line(state.text, start):
        return start + 1
    ending = state.scanner.search(_PATCH_END, start)
    if (ending is None or ending.end() >= len(state.text)) and state.needs_more(_PATCH_WAKE):
        return start
    begin = state.text.rfind("\n", 0, start) + 1
    patch = diffs.read_apply_patch(state.text, begin)
    if patch is None:
        return start + 1
    edits, end = patch
    _add_edits(state, edits, (begin, end))
    state.skip(begin, end)
    return end


def _add_edits(state: ParserState, edits: list[diffs.PatchedFile], span: Span) -> None:
    for edit in edits:
        if edit.body is None:
            state.add("rm", {"path": edit.path}, "", span)
        elif edit.body:
            state.add("set", {"path": edit.path}, edit.body, span)
        if edit.moved_to is not None:
            state.add("mv", {"path": edit.path, "to": edit.moved_to}, "", span)
    state.native_calls += len(edits)


def on_conflict(state: ParserState, found: re.Match[str]) -> int:
    """Add a conflict block with a file name as a `set`. Source: C25."""
    if not conflicts.is_final(state.scanner, found) and state.needs_more(_BLOCK_WAKE):
        return found.start()
    block = conflicts.read_block(state.scanner, found)
    span = (found.start(), block.end)
    if isinstance(block, conflicts.BadBlock):
        path = conflicts.path_before(state.text, found.start())
        lost = Command("set", MappingProxyType({"path": path} if path else {}))
        message = f"An edit block was not applied: {block.message}."
        state.warn("conflict_block", message, found.span(), lost=(lost,))
        return block.end
    path = conflicts.path_before(state.text, found.start())
    if path is None and state.path and conflicts.continues_block(state.text, state.path_end, found.start()):
        path = state.path
    state.path, state.path_end = path, block.end
    if path is None:
        message = "An edit block has no file name on the line before it; use <set path=...>."
        state.warn("conflict_without_path", message, span, lost=(Command("set"),))
        return block.end
    state.add("set", {"path": path}, state.text[slice(*span)], span)
    state.native_calls += 1
    state.skip(*span)
    return block.end


def on_tail(state: ParserState, found: re.Match[str]) -> int:
    """Warn about the end of an edit block without its start."""
    if found.end() >= len(state.text) and state.needs_more(LINE_WAKE):
        return found.start()
    state.warn("conflict_block", "`>>>>>>> REPLACE` ends no edit block; the edit was not applied.", found.span())
    return found.end()


@lru_cache(maxsize=128)
def _backtick_run(length: int) -> re.Pattern[str]:
    return re.compile(rf"(?<!`)`{{{min(length, 100)}}}(?!`)")


@lru_cache(maxsize=256)
def _fence_end(mark: str, length: int) -> re.Pattern[str]:
    return re.compile(rf"^[ \t]*(?:>[ \t]*)?{mark}{{{length},}}[ \t\r]*$", re.MULTILINE)

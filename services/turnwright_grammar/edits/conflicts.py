"""Conflict-marker blocks, as models trained on other editors write them.

    path/to/file.py
    <<<<<<< SEARCH
    old
    =======
    new
    >>>>>>> REPLACE

Where they stand and what they say; in a reply a block with a file name is a `set` with the block as its body.

Source: C25 ("conflict markers or diffs with a file name").
"""

from __future__ import annotations

import re

from msgspec import Struct

from turnwright_core.patterns.typography import composed
from turnwright_grammar.scanner import TextScanner

HEAD = re.compile(r"^[ \t]*<{5,9} ?SEARCH>?[ \t\r]*$", re.MULTILINE)
_DIVIDER = re.compile(r"^[ \t]*={5,9}[ \t\r]*$", re.MULTILINE)
TAIL = re.compile(r"^[ \t]*>{5,9} ?REPLACE[ \t\r]*$", re.MULTILINE)
_LINE_HINTS = re.compile(r"(?:[ \t]*:(?:start|end)_line:[ \t]*\d*[ \t]*\n)*(?:[ \t]*-{5,9}[ \t]*\n)?")
_BAD_HINT = re.compile(r"^[ \t]*:(?:start|end)_line:", re.MULTILINE)
_ESCAPED = re.compile(r"^\\(?=:(?:start|end)_line:|<{5,9} SEARCH|={5,9}$|>{5,9} REPLACE|-{5,9}$)", re.MULTILINE)
_AFTER_WRONG_CLOSE = re.compile(r"\n(?P<tail>[ \t]*>{5,9} ?REPLACE[ \t]*(?=\n|\Z))|\n?(?=\n|[ \t]*`{3,}|\Z)")
_FENCE_MARK = r"(?:`{3,}|~{3,}|</?source>)[ \t]*[\w+#-]*"
_FENCE_LINE = re.compile(rf"\s*{_FENCE_MARK}\s*\Z")
_BETWEEN_LINE = re.compile(rf"\s*(?:{_FENCE_MARK}|\.\.\.|\u2026)?\s*\Z")
_BETWEEN_CHARS_MAX = 1_000
_FILE_NAME = re.compile(
    r"""
    (?!https?://|.*[.,;:/\\?!]\Z | \(.*\)\Z | \[.*\]\Z)
    (?: (?:[A-Za-z][\w+.-]*://|[A-Za-z]:)?(?:[\w.@~+$%&,()\[\]{}\-]*[/\\])+[\w.@~+$%&,()\[\]{}\-]+  # src/a
      | [\w.@~+$%&()\[\]{}\-]*\.[A-Za-z_][\w~\-]*                                              # a.py, .gitignore
      | (?:[A-Z]\w*|[Mm]ake|[Jj]ust)file | [A-Z]{5,}(?:_[A-Z]+)*                                 # Makefile, LICENSE
      | [A-Za-z][\w+.-]*://[\w.@~+%-]+                                                          # known://plan
    )\Z
    """,
    re.VERBOSE,
)
_LABEL = re.compile(
    r"\s*\#*\s*(?:[*`]{0,3}(?:file|file ?name|file ?path|path)[*`]{0,2}[ \t]*:[*`]{0,2}[ \t]*)?", re.IGNORECASE
)
_NAMED_FENCE = re.compile(
    r"\s*(?:`{3,}|~{3,})[ \t]*(?:[\w+#-]*(?:[ \t]+|:))?(?:(?:title|file|filename|path)[=:])?(?P<name>[^`\s]+)\s*\Z"
)
_FILENAME_CHARS_MAX = 300
_FILENAME_LINES_MAX = 3


class ConflictBlock(Struct, frozen=True):
    """One search and its replacement, each with its line ends, and where the block ends."""

    search: str
    replace: str
    end: int


class BadBlock(Struct, frozen=True):
    """Why a block is not one. `end` is where reading may go on."""

    message: str
    end: int


def read_block(scanner: TextScanner, head: re.Match[str]) -> ConflictBlock | BadBlock:
    """Read the block that opens at `head` (a match of HEAD). Never raises."""
    text, start = scanner.text, min(head.end() + 1, len(scanner.text))
    following = scanner.search(HEAD, start)
    stop = following.start() if following else len(text)
    divider = scanner.search(_DIVIDER, start)
    tail = scanner.search(TAIL, start)
    if divider is None or divider.start() > stop or (tail and tail.start() < divider.start()):
        return BadBlock("`<<<<<<< SEARCH` without `=======`", head.end())
    search = _LINE_HINTS.sub("", text[start : divider.start()], count=1)
    ending = _replacement_end(scanner, divider, tail, stop)
    if isinstance(ending, BadBlock):
        return ending
    end, after = ending
    replacement = text[min(divider.end() + 1, end) : end]
    if _BAD_HINT.search(replacement):
        return BadBlock("a line marker (`:start_line:`) in the replacement", after)
    return ConflictBlock(_ESCAPED.sub("", search), _ESCAPED.sub("", replacement), after)


def is_final(scanner: TextScanner, head: re.Match[str]) -> bool:
    """Whether no further text can change what `read_block` says of `head`: its end, or another beginning, is there."""
    start, size = head.end() + 1, len(scanner.text)
    stops = (scanner.search(TAIL, start), scanner.search(HEAD, start))
    return scanner.final or any(stop is not None and stop.end() < size for stop in stops)


def _replacement_end(
    scanner: TextScanner, divider: re.Match[str], tail: re.Match[str] | None, stop: int
) -> tuple[int, int] | BadBlock:
    """Return where the replacement ends and where the block ends."""
    second = scanner.search(_DIVIDER, divider.end())
    if tail is not None and tail.start() > stop:
        tail = None
    if second is None or second.start() > (tail.start() if tail else stop):
        return (tail.start(), tail.end()) if tail else BadBlock("`=======` without `>>>>>>> REPLACE`", divider.end())
    # Models close a block with `=======`. It is a close only where nothing of the file can follow.
    closes = _AFTER_WRONG_CLOSE.match(scanner.text, second.end())
    if closes and second.start() > divider.end() + 1:
        return second.start(), closes.end("tail") if closes["tail"] else second.end()
    end = tail.end() if tail else second.end()
    return BadBlock("two `=======` in one block; escape a literal one as `\\=======`", end)


def path_before(text: str, start: int) -> str | None:
    """Return the path that stands alone on the line before `start`, or on the line before a fence that opens there.

    A line names a file when there is nothing but a path on it, perhaps as a heading, in bold, in backticks, before a
    colon, behind `File:`, or behind the language of the fence. Prose names none: an edit of the wrong file is worse
    than one that has to be sent again.
    """
    window = text[max(0, start - 2_000) : start]
    for line in window.split("\n")[-2 : -2 - _FILENAME_LINES_MAX : -1]:
        fence = _NAMED_FENCE.match(line)
        if fence and (name := file_name(fence["name"])):
            return name
        if not _FENCE_LINE.match(line):
            return file_name(line)
    return None


def continues_block(text: str, end: int, start: int) -> bool:
    """Whether a block at `start` follows the one that ended at `end` with nothing said in between."""
    return start - end <= _BETWEEN_CHARS_MAX and all(
        _BETWEEN_LINE.match(line) for line in text[max(0, end) : start].split("\n")
    )


def file_name(line: str) -> str | None:
    """The path that a line names and says nothing but; None for any other line."""
    label = _LABEL.match(line)
    name = line[label.end() :].strip().strip("`*'\"").rstrip(":").strip().strip("`*'\"")  # type: ignore[union-attr]
    return name if len(name) <= _FILENAME_CHARS_MAX and _FILE_NAME.match(composed(name)) else None

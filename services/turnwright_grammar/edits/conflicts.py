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

from turnwright_core.values import frozen
from turnwright_grammar.find import Finder

HEAD = re.compile(r"^[ \t]*<{5,9} ?SEARCH>?[ \t\r]*$", re.MULTILINE)
_DIVIDER = re.compile(r"^[ \t]*={5,9}[ \t\r]*$", re.MULTILINE)
TAIL = re.compile(r"^[ \t]*>{5,9} ?REPLACE[ \t\r]*$", re.MULTILINE)
_LINE_HINTS = re.compile(r"(?:[ \t]*:(?:start|end)_line:[ \t]*\d*[ \t]*\n)*(?:[ \t]*-{5,9}[ \t]*\n)?")
_BAD_HINT = re.compile(r"^[ \t]*:(?:start|end)_line:", re.MULTILINE)
_ESCAPED = re.compile(r"^\\(?=:(?:start|end)_line:|<{5,9} SEARCH|={5,9}$|>{5,9} REPLACE|-{5,9}$)", re.MULTILINE)
_AFTER_WRONG_CLOSE = re.compile(r"\n(?P<tail>[ \t]*>{5,9} ?REPLACE[ \t]*(?=\n|\Z))|\n?(?=\n|[ \t]*`{3,}|\Z)")
_FENCE_LINE = re.compile(r"\s*(?:`{3,}|~{3,}|</?source>)\S*\s*\Z")
_FILENAME_LINES_MAX = 3


@frozen
class Block:
    """One search and its replacement, each with its line ends, and where the block ends."""

    search: str
    replace: str
    end: int


@frozen
class BadBlock:
    """Why a block is not one. `end` is where reading may go on."""

    message: str
    end: int


def read_block(finder: Finder, head: re.Match[str]) -> Block | BadBlock:
    """Read the block that opens at `head` (a match of HEAD). Never raises."""
    text, start = finder.text, min(head.end() + 1, len(finder.text))
    following = finder.search(HEAD, start)
    stop = following.start() if following else len(text)
    divider = finder.search(_DIVIDER, start)
    tail = finder.search(TAIL, start)
    if divider is None or divider.start() > stop or (tail and tail.start() < divider.start()):
        return BadBlock("`<<<<<<< SEARCH` without `=======`", head.end())
    search = _LINE_HINTS.sub("", text[start : divider.start()], count=1)
    ending = _replacement_end(finder, divider, tail, stop)
    if isinstance(ending, BadBlock):
        return ending
    end, after = ending
    replacement = text[min(divider.end() + 1, end) : end]
    if _BAD_HINT.search(replacement):
        return BadBlock("a line marker (`:start_line:`) in the replacement", after)
    return Block(_ESCAPED.sub("", search), _ESCAPED.sub("", replacement), after)


def is_settled(finder: Finder, head: re.Match[str]) -> bool:
    """Whether no further text can change what `read_block` says of `head`: its end, or another beginning, is there."""
    start, size = head.end() + 1, len(finder.text)
    stops = (finder.search(TAIL, start), finder.search(HEAD, start))
    return finder.final or any(stop is not None and stop.end() < size for stop in stops)


def _replacement_end(
    finder: Finder, divider: re.Match[str], tail: re.Match[str] | None, stop: int
) -> tuple[int, int] | BadBlock:
    """Return where the replacement ends and where the block ends."""
    second = finder.search(_DIVIDER, divider.end())
    if tail is not None and tail.start() > stop:
        tail = None
    if second is None or second.start() > (tail.start() if tail else stop):
        return (tail.start(), tail.end()) if tail else BadBlock("`=======` without `>>>>>>> REPLACE`", divider.end())
    # Models close a block with `=======`. It is a close only where nothing of the file can follow.
    closes = _AFTER_WRONG_CLOSE.match(finder.text, second.end())
    if closes and second.start() > divider.end() + 1:
        return second.start(), closes.end("tail") if closes["tail"] else second.end()
    end = tail.end() if tail else second.end()
    return BadBlock("two `=======` in one block; escape a literal one as `\\=======`", end)


def path_before(text: str, start: int) -> str | None:
    """Return the file name on the lines before `start`: the nearest line that is no fence."""
    window = text[max(0, start - 2_000) : start]
    for line in window.split("\n")[-2 : -2 - _FILENAME_LINES_MAX : -1]:
        name = _file_name(line)
        if name:
            return name
        if not _FENCE_LINE.match(line):
            return None
    return None


def _file_name(line: str) -> str | None:
    name = line.strip().lstrip("#").strip().strip("`*").rstrip(":").strip().strip("`*")
    if not name or name == "..." or _FENCE_LINE.match(line) or len(name) > 300:
        return None
    plausible = "/" in name or "." in name or " " not in name
    return name if plausible and not re.search(r"[<>|\"]|[.!?] |[.:]\Z", name) else None

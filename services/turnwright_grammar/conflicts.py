"""Conflict-marker blocks and unified diffs, as models trained on other editors write them.

    path/to/file.py
    <<<<<<< SEARCH
    old
    =======
    new
    >>>>>>> REPLACE

A block becomes a `set` whose body is our own marker grammar, so that one code path applies edits.

Source: C25 ("conflict markers or diffs with a file name").
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from turnwright_grammar.find import Finder

HEAD = re.compile(r"^[ \t]*<{5,9} ?SEARCH>?[ \t\r]*$", re.MULTILINE)
_DIVIDER = re.compile(r"^[ \t]*={5,9}[ \t\r]*$", re.MULTILINE)
_TAIL = re.compile(r"^[ \t]*>{5,9} ?REPLACE[ \t\r]*$", re.MULTILINE)
_LINE_HINTS = re.compile(r"(?:[ \t]*:(?:start|end)_line:[ \t]*\d*[ \t]*\n)*(?:[ \t]*-{5,9}[ \t]*\n)?")
_BAD_HINT = re.compile(r"^[ \t]*:(?:start|end)_line:", re.MULTILINE)
_ESCAPED = re.compile(r"^\\(?=:(?:start|end)_line:|<{5,9} SEARCH|={5,9}$|>{5,9} REPLACE|-{5,9}$)", re.MULTILINE)
_AFTER_WRONG_CLOSE = re.compile(r"\n(?P<tail>[ \t]*>{5,9} ?REPLACE[ \t]*(?=\n|\Z))|\n?(?=\n|[ \t]*`{3,}|\Z)")
_MARKER_WORD = re.compile(r"(?<!\S)(?:<<)?(?:SEARCH|REPLACE|NEW)(\d*)(?!\S)")
_FILE_HEADER = re.compile(r"^--- (?P<old>[^\n]+)\n\+\+\+ (?P<new>[^\n]+)\n", re.MULTILINE)
_HUNK = re.compile(r"^@@[^\n]*(?:\n|\Z)", re.MULTILINE)
_FENCE_LINE = re.compile(r"\s*(?:`{3,}|~{3,}|</?source>)\S*\s*\Z")
_FILENAME_LINES_MAX = 3


@dataclass(frozen=True, slots=True)
class Block:
    """One search and its replacement, each with its line ends, and where the block ends."""

    search: str
    replace: str
    end: int


@dataclass(frozen=True, slots=True)
class BadBlock:
    """Why a block is not one. `end` is where reading may go on."""

    message: str
    end: int


@dataclass(frozen=True, slots=True)
class FileEdit:
    """An edit of one file out of a diff: `body` in marker grammar, or None to remove the file."""

    path: str
    body: str | None


def read_block(finder: Finder, head: re.Match[str]) -> Block | BadBlock:
    """Read the block that opens at `head` (a match of HEAD). Never raises."""
    text, start = finder.text, min(head.end() + 1, len(finder.text))
    following = finder.search(HEAD, start)
    stop = following.start() if following else len(text)
    divider = finder.search(_DIVIDER, start)
    tail = finder.search(_TAIL, start)
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


def marker_body(pairs: list[tuple[str, str]]) -> str:
    """Return `(search, replacement)` pairs as a body in marker grammar, with a suffix that collides with nothing."""
    used = {found[1] for pair in pairs for part in pair for found in _MARKER_WORD.finditer(part)}
    suffix = next(word for word in ["", *map(str, range(1, len(used) + 2))] if word not in used)
    return "\n".join(_pair(search, replacement, suffix) for search, replacement in pairs)


def _pair(search: str, replacement: str, suffix: str) -> str:
    return f"<<SEARCH{suffix}\n{_ended(search)}SEARCH{suffix}\n<<REPLACE{suffix}\n{_ended(replacement)}REPLACE{suffix}"


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def read_diff(text: str) -> list[FileEdit]:
    """Return the edits of a unified diff; an empty list when the text is none. Never raises."""
    headers = list(_FILE_HEADER.finditer(text))
    edits = []
    for index, header in enumerate(headers):
        end = headers[index + 1].start() if index + 1 < len(headers) else len(text)
        edit = _file_edit(header, text[header.end() : end])
        if edit:
            edits.append(edit)
    return edits


def _file_edit(header: re.Match[str], part: str) -> FileEdit | None:
    old, new = _diff_path(header["old"]), _diff_path(header["new"])
    hunks = [_hunk(lines) for lines in _HUNK.split(part)[1:]]
    if new is None:
        return FileEdit(old, None) if old else None
    if old is None:
        content = "".join(replacement for _, replacement in hunks)
        return FileEdit(new, f"<<NEW_FILE\n{_ended(content)}NEW_FILE")
    pairs = [(search, replacement) for search, replacement in hunks if search != replacement]
    return FileEdit(new, marker_body(pairs)) if pairs else None


def _diff_path(name: str) -> str | None:
    name = name.split("\t", 1)[0].strip()
    return None if name == "/dev/null" else re.sub(r"\A[ab]/", "", name)


def _hunk(lines: str) -> tuple[str, str]:
    search, replacement = [], []
    for line in lines.split("\n"):
        sign, content = line[:1], line[1:] + "\n"
        if sign in (" ", "-"):
            search.append(content)
        if sign in (" ", "+"):
            replacement.append(content)
    return "".join(search), "".join(replacement)

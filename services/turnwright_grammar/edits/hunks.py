r"""Parser for the hunks of unified diffs and of `apply_patch`.

    hunk      = header { line }
    header    = "@@ -12,3 +12,4 @@ heading" | "@@ heading" | "@@"
    line      = " " context | "-" removed | "+" added | "" (a blank context line) | "\ No newline at end of file"

Models count lines badly, so the counts of a header bind nothing: they only tell a blank kept line
from a blank line after the hunk, and a forgotten space before a kept line from the end of the hunk. Without counts a
blank line at the end that lacks its space may be the hunk's or not; what is in the text decides.

Source: C25, the issue's "edit forms recognised where unambiguous", C57.
"""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

HEADINGS_MAX = 8
_HEADER = re.compile(
    r"@@+(?:[ \t]*-(?P<line>\d{1,9})(?:,(?P<old>\d{1,9}))?(?:[ \t]+\+\d{1,9}(?:,(?P<new>\d{1,9}))?)?(?=[ \t@]|\Z))?"
)
_NUMBER = re.compile(r"\d+\.\d+[\w.]*\s*\Z")
_OLD_NAME = re.compile(r"--- \s*\S")
_NEW_NAME = re.compile(r"\+\+\+ \s*\S")
_END_OF_FILE = "*** End of File"
_GIT_HEADS = ("diff --git ", "Index: ")
_NEVER_ENDS = (" ", "+", "")
_SIGNS = (" ", "+", "-")


class Hunk(Struct, frozen=True):
    """One hunk of a diff: context, removed and added lines, and where they belong.

    `signed` are the lines, each behind its sign: a space, `-` or `+`. `line` (from 1) is where the old
    lines began before any hunk was applied; for a hunk without old lines it is the line to insert behind.
    `after` are lines that stand somewhere above, outermost first, which must be there if `strict`.
    `trailing_blanks` counts blank lines at the end that may not belong to the hunk. `at_end` says that the old lines
    end the text.
    """

    signed: tuple[str, ...]
    line: int | None = None
    after: tuple[str, ...] = ()
    strict: bool = False
    trailing_blanks: int = 0
    at_end: bool = False
    old_lacks_newline: bool = False
    new_lacks_newline: bool = False

    @property
    def old(self) -> tuple[str, ...]:
        """Context and removed lines."""
        return tuple(line[1:] for line in self.signed if line[0] != "+")

    @property
    def new(self) -> tuple[str, ...]:
        """Context and added lines."""
        return tuple(line[1:] for line in self.signed if line[0] != "-")

    @property
    def without_trailing_blanks(self) -> Hunk:
        """The hunk without trailing blank lines that may not belong to it."""
        if not self.trailing_blanks:
            return self
        return replace(self, signed=self.signed[: -self.trailing_blanks], trailing_blanks=0)

    @property
    def changes(self) -> bool:
        """Whether anything is taken out or put in."""
        return self.old != self.new or self.old_lacks_newline != self.new_lacks_newline


class _HunkHeader(Struct, frozen=True):
    line: int | None = None
    old_count: int | None = None
    new_count: int | None = None
    heading: str = ""


def read_hunks(lines: list[str], at: int, *, loose: bool = False, strict: bool = False) -> tuple[list[Hunk], int]:
    """Return the hunks from index `at` of `lines` on, and the index of the first line that is of none.

    The first hunk may lack its header. `loose` takes a line without any sign as a kept one; `strict`
    goes into the hunks. Linear in what is read.
    """
    hunks: list[Hunk] = []
    after: tuple[str, ...] = ()
    while at < len(lines):
        head = _head(lines[at])
        if head is not None and head.heading and head.line is None:
            after = (*after, head.heading)[-HEADINGS_MAX:]
        growing = _HunkBuilder(head or _HunkHeader(), loose=loose)
        end = at + (head is not None)
        while end < len(lines) and not _ends_hunk(lines, end) and growing.add(lines[end]):
            end += 1
        at_end = end < len(lines) and lines[end].startswith(_END_OF_FILE)
        hunk = growing.hunk(after, strict=strict, at_end=at_end)
        if hunk is not None:
            hunks.append(hunk)
            after = ()
        end += at_end
        if end == at or (head is None and hunk is None):
            break
        at = end
    return hunks, at


def is_hunk_header(line: str) -> bool:
    return line.startswith("@@")


def is_numbered(line: str) -> bool:
    """Whether a line is a hunk header with line numbers."""
    head = _head(line)
    return head is not None and head.line is not None


def is_file_header(lines: list[str], at: int) -> bool:
    """Whether the two lines at index `at` name an old and a new file."""
    return at + 1 < len(lines) and bool(_OLD_NAME.match(lines[at]) and _NEW_NAME.match(lines[at + 1]))


def is_signature(lines: list[str], at: int) -> bool:
    """Whether the two lines at index `at` are the end of a mailed patch: `--` and a version of git."""
    return lines[at].rstrip() == "--" and at + 1 < len(lines) and _NUMBER.match(lines[at + 1]) is not None


def _head(line: str) -> _HunkHeader | None:
    found = _HEADER.match(line)
    if found is None:
        return None
    heading = line[found.end() :].strip().removeprefix("@@").removesuffix("@@").strip()
    if found["line"] is None:
        return _HunkHeader(heading="" if heading.strip(".") == "" else heading)
    return _HunkHeader(int(found["line"]), int(found["old"] or 1), int(found["new"] or 1), heading)


class _HunkBuilder:
    def __init__(self, head: _HunkHeader, *, loose: bool) -> None:
        self._head = head
        self._loose = loose or head.line is not None
        self._signed: list[str] = []
        self._bare: set[str] = set()
        self._doubtful = 0
        self._old, self._new = 0, 0

    def add(self, line: str) -> bool:
        """Add a line; False if it does not belong to the hunk."""
        if line.startswith("\\"):
            self._bare.add(self._signed[-1][0] if self._signed else " ")
            return True
        if line and line[0] not in _SIGNS and not (line[0] == "\t" or self._takes_unsigned()):
            return False
        signed = line if line[:1] in _SIGNS else " " + line
        self._signed.append(signed)
        self._doubtful = 0 if line.strip() or line[:1] == " " else self._doubtful + 1
        self._old += signed[0] != "+"
        self._new += signed[0] != "-"
        return True

    def _takes_unsigned(self) -> bool:
        full = self._old >= (self._head.old_count or 0) and self._new >= (self._head.new_count or 0)
        return self._loose and not (full and self._head.line is not None)

    def hunk(self, after: tuple[str, ...], *, strict: bool, at_end: bool) -> Hunk | None:
        """Return the hunk, None without lines."""
        counted = self._head.old_count
        surplus = 0 if counted is None else min(self._doubtful, max(0, self._old - counted))
        signed = tuple(self._signed[: len(self._signed) - surplus])
        if not any(line.strip() for line in signed):
            return None
        old_lacks_newline, new_lacks_newline = bool({" ", "-"} & self._bare), bool({" ", "+"} & self._bare)
        if counted is None:
            return Hunk(signed, None, after, strict, self._doubtful, at_end, old_lacks_newline, new_lacks_newline)
        has_old = any(line[0] != "+" for line in signed)
        line = self._head.line if has_old or counted == 0 else None
        return Hunk(signed, line, (), False, 0, at_end, old_lacks_newline, new_lacks_newline)


def _ends_hunk(lines: list[str], at: int) -> bool:
    line = lines[at]
    if line[:1] in _NEVER_ENDS:
        return False
    if is_hunk_header(line) or line.startswith(_GIT_HEADS):
        return True
    if line.startswith("*** ") or is_signature(lines, at):
        return True
    return is_file_header(lines, at) and at + 2 < len(lines) and is_hunk_header(lines[at + 2])

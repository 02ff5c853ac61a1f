"""Unified diffs and `apply_patch` texts: which files they change, and how.

    unified     = { git line } [ "--- " old "+++ " new ] { hunk }
    apply_patch = "*** Begin Patch" { section } "*** End Patch"
    section     = "*** Add File: " path { "+" line }
                | "*** Delete File: " path
                | "*** Update File: " path [ "*** Move to: " path ] { hunk }

`read_diff` and `read_apply_patch` serve the reader of replies: what they return is a `set`, a move or a
removal for each file, and `apply_edit` reads the bodies with `read_patch` again. None of the three
raises; each is linear in what it reads.

Source: C25.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from turnwright_grammar.edits.hunks import Hunk, is_file_header, is_hunk_header, is_numbered, is_signature, read_hunks

PATCH_ENDINGS = (".diff", ".patch")
_GIT_LINE = re.compile(
    r"(?:diff --git|index|new file mode|deleted file mode|old mode|new mode|similarity index|dissimilarity index"
    r"|rename from|rename to|Binary files|Index:|={20,})(?: (?P<rest>.*)|\Z)"
)
_FILE_OPENERS = ("diff --git ", "Index: ")
_BEGIN_OR_END = re.compile(r"^[ \t]*\*\*\* (?P<word>Begin|End) Patch[ \t\r]*$", re.MULTILINE)
_SECTION = re.compile(r"\*\*\* (?P<verb>Add|Create|Delete|Update) File: ?(?P<path>.*)", re.IGNORECASE)
_MOVE = re.compile(r"\*\*\* (?:Move|Rename) to: ?(?P<path>.*)", re.IGNORECASE)
_FENCE = re.compile(r"(?:`{3,}|~{3,})[ \t]*(?:diff|patch|udiff|apply_patch)?[ \t]*\Z", re.IGNORECASE)
_HEREDOC = re.compile(r"(?:apply_patch[ \t]*)?<<-?[ \t]*(?P<quote>['\"]?)(?P<word>EOF|EOT|END|PATCH)(?P=quote)[ \t]*\Z")
_AFTER_NAME = re.compile(r"\t|[ ](?:\d{4}-\d\d-\d\d[ T]|\((?:revision|working copy|nonexistent))")
_NEW_WORD = re.compile(r"(?<!\S)(?:<<)?NEW(\d*)(?!\S)")


class PatchedFile(Struct, frozen=True):
    """What a patch does to one file: the reader makes a `set`, a move or a removal of it.

    `body` is what `apply_edit` reads; None removes the file, and an empty one only moves it.
    `moved_to` is the file's path afterwards.
    """

    path: str
    body: str | None
    moved_to: str | None = None


class FilePatch(Struct, frozen=True):
    """One file's part of a patch. `path` is empty when the patch names no file.

    An added file has its `content`, an updated one its `hunks`, and `source` are their lines as written.
    """

    path: str
    action: Literal["add", "delete", "update"]
    hunks: tuple[Hunk, ...] = ()
    content: str = ""
    moved_to: str | None = None
    source: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        return self.action != "update" or self.moved_to is not None or any(hunk.changes for hunk in self.hunks)


class BadPatch(Struct, frozen=True):
    """A text that begins as a patch beyond doubt, and at this line (from 1) is none."""

    line: int


def read_diff(text: str) -> list[PatchedFile]:
    """Return the edits of a unified diff that names its files; an empty list when the text is none.

    Text between the files means nothing, as for the program `patch`. Never raises.
    """
    lines = _lines(text)
    edits: list[PatchedFile] = []
    at = 0
    while at < len(lines):
        if not _opens_file(lines, at):
            at += 1
            continue
        patch, end = _read_file(lines, at)
        edits += _as_edit(patch, f"--- a/{patch.path}\n+++ b/{patch.path}\n", "")
        at = max(end, at + 1)
    return edits


def read_apply_patch(text: str, start: int) -> tuple[list[PatchedFile], int] | None:
    """Return the edits of the `apply_patch` text that opens at `start`, and the offset where it ends.

    Without its last line it ends where another begins, or at the first line that it cannot hold. None
    when there is none at `start`. Never raises; linear over growing starts.
    """
    opening = _BEGIN_OR_END.match(text, start)
    if opening is None or opening["word"] != "Begin":
        return None
    ending = _BEGIN_OR_END.search(text, opening.end())
    closed = ending is not None and ending["word"] == "End"
    stop = ending.start() if ending else len(text)
    inside = text[opening.end() + 1 : stop]
    patches, taken = _read_sections(_lines(inside), loose=closed)
    edits = [edit for patch in patches for edit in _as_edit(patch, *_envelope(patch))]
    if not edits:
        return None
    if ending is not None and closed:
        return edits, ending.end()
    used = inside.split("\n")[:taken]
    return edits, min(stop, opening.end() + 1 + sum(len(line) + 1 for line in used))


def read_patch(body: str) -> list[FilePatch] | BadPatch | None:
    """Return the files of a body that is wholly a patch, BadPatch when it only begins as one, else None.

    A fence or a heredoc around it is taken off. A patch is told by its first line: `*** Begin Patch` or
    a section of it, `diff --git`, `---` and `+++`, or `@@`. All other lines must belong to it, and it
    must change something. Never raises.
    """
    lines, skipped = _unwrapped(_lines(body))
    if not lines:
        return None
    if _is_wrapper_line(lines[0]) or _SECTION.match(lines[0]):
        patches, end = _read_sections(lines, loose=True)
        if end == len(lines) and any(patch.changes for patch in patches):
            return patches
        return BadPatch(skipped + end % len(lines) + 1)
    sure = _opens_file(lines, 0) or is_numbered(lines[0])
    if not sure and not is_hunk_header(lines[0]):
        return None
    patches, end = _read_files(lines)
    if end == len(lines):
        return patches
    return BadPatch(skipped + end + 1) if sure else None


def new_body(content: str) -> str:
    """Return a `set` body that writes `content` as it is, in a marker that `content` does not close."""
    used = {found[1] for found in _NEW_WORD.finditer(content)}
    suffix = next(word for word in ["", *map(str, range(1, len(used) + 2))] if word not in used)
    return f"<<NEW{suffix}\n{content}\nNEW{suffix}" if content else f"<<NEW{suffix}\nNEW{suffix}"


def _lines(text: str) -> list[str]:
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]


def _unwrapped(lines: list[str]) -> tuple[list[str], int]:
    """Take a fence, a heredoc and the indentation of the first line off; count the lines before."""
    first, last = _nonblank_bounds(lines, 0, len(lines))
    end = len(lines)
    while last - first >= 2 and _is_wrapper(lines[first].strip(), lines[first + 1], lines[last].strip()):
        end = last
        first, last = _nonblank_bounds(lines, first + 1, last)
    inside = lines[first:end] if first <= last else []
    indent = inside[0][: len(inside[0]) - len(inside[0].lstrip())] if inside else ""
    return [line.removeprefix(indent) for line in inside] if indent else inside, first


def _nonblank_bounds(lines: list[str], first: int, end: int) -> tuple[int, int]:
    """The first and the last line that is not blank; the first is behind the last when there is none."""
    last = end - 1
    while first <= last and not lines[first].strip():
        first += 1
    while last > first and not lines[last].strip():
        last -= 1
    return first, last


def _is_wrapper(first: str, second: str, last: str) -> bool:
    heredoc = _HEREDOC.match(first)
    if heredoc is not None:
        return last == heredoc["word"] and _is_wrapper_line(second)
    return bool(_FENCE.match(first) and _FENCE.match(last))


def _is_wrapper_line(line: str) -> bool:
    return _BEGIN_OR_END.match(line) is not None


def _read_sections(lines: list[str], *, loose: bool) -> tuple[list[FilePatch], int]:
    """Read sections of `apply_patch`; return them and the index of the first line of none."""
    patches: list[FilePatch] = []
    at = 0
    while at < len(lines):
        if _is_wrapper_line(lines[at]) or not lines[at].strip():
            at += 1
            continue
        section = _SECTION.match(lines[at])
        if section is None or not section["path"].strip():
            break
        patch, at = _read_section(lines, at + 1, section, loose=loose)
        patches.append(patch)
    return patches, at


def _read_section(lines: list[str], at: int, section: re.Match[str], *, loose: bool) -> tuple[FilePatch, int]:
    path, verb = section["path"].strip(), section["verb"].lower()
    if verb == "delete":
        return FilePatch(path, "delete"), at
    if verb != "update":
        end = at
        while end < len(lines) and (lines[end][:1] == "+" or not lines[end] or loose) and lines[end][:4] != "*** ":
            end += 1
        return FilePatch(path, "add", content=_added(lines[at:end])), end
    move = _MOVE.match(lines[at]) if at < len(lines) else None
    at += move is not None
    hunks, end = read_hunks(lines, at, loose=loose, strict=True)
    moved_to = move["path"].strip() or None if move else None
    return FilePatch(path, "update", tuple(hunks), moved_to=moved_to, source=tuple(lines[at:end])), end


def _added(lines: list[str]) -> str:
    while lines and not lines[-1]:
        lines.pop()
    return "".join(line.removeprefix("+") + "\n" for line in lines)


def _read_files(lines: list[str]) -> tuple[list[FilePatch], int]:
    """Read unified files, the first of which may lack its names; return them and the first line of none."""
    patches: list[FilePatch] = []
    at = 0
    while at < len(lines):
        patch, end = _read_file(lines, at)
        if not patch.changes:
            return patches, end if end < len(lines) else at
        patches.append(patch)
        at = end
        while at < len(lines) and not lines[at].strip():
            at += 1
        if at < len(lines) and is_signature(lines, at):
            return patches, len(lines)
        if at < len(lines) and not _opens_file(lines, at):
            return patches, at
    return patches, at


def _opens_file(lines: list[str], at: int) -> bool:
    return lines[at].startswith(_FILE_OPENERS) or is_file_header(lines, at)


def _read_file(lines: list[str], at: int) -> tuple[FilePatch, int]:
    old, new = "", ""
    headers: dict[str, str] = {}
    begin = at
    while at < len(lines) and (git_line := _GIT_LINE.match(lines[at])):
        if at > begin and lines[at].startswith(_FILE_OPENERS):
            break
        headers[lines[at].removesuffix(git_line["rest"] or "").strip()] = git_line["rest"] or ""
        at += 1
    if "diff --git" in headers:
        old, new = _git_names(headers["diff --git"])
    if at < len(lines) and is_file_header(lines, at):
        old, new = _file_name(lines[at][4:]), _file_name(lines[at + 1][4:])
        at += 2
    hunks, end = read_hunks(lines, at)
    source = tuple(lines[at:end])
    old, new = _without_prefixes(old, new)
    if old == "/dev/null" or "new file mode" in headers:
        return FilePatch(new, "add", content=_content(hunks), source=source), end
    if new == "/dev/null" or "deleted file mode" in headers:
        return FilePatch(old, "delete"), end
    moved_to = headers.get("rename to")
    path = headers.get("rename from", old) if moved_to else new
    return FilePatch(path, "update", tuple(hunks), moved_to=moved_to, source=source), end


def _content(hunks: list[Hunk]) -> str:
    text = "".join(line + "\n" for hunk in hunks for line in hunk.without_trailing_blanks.new)
    return text.removesuffix("\n") if hunks and hunks[-1].new_lacks_newline else text


def _git_names(rest: str) -> tuple[str, str]:
    """Split `a/x b/x`: both names are equal but for their first letter, so the middle divides them."""
    middle = len(rest) // 2
    old, new = rest[:middle], rest[middle + 1 :]
    return (_file_name(old), _file_name(new)) if rest[middle : middle + 1] == " " and old[1:] == new[1:] else ("", "")


def _file_name(text: str) -> str:
    tail = _AFTER_NAME.search(text)
    return (text[: tail.start()] if tail else text).strip().strip('"')


def _without_prefixes(old: str, new: str) -> tuple[str, str]:
    """Take off the letters that git puts before the names: `a/x` and `b/x`, or `i/x` and `w/x`."""
    if "/dev/null" in (old, new):
        return re.sub(r"\Aa/", "", old), re.sub(r"\Ab/", "", new)
    lettered = old[1:2] == "/" == new[1:2] and old[0] != new[0]
    if lettered and (old[2:] == new[2:] or (old[0], new[0]) == ("a", "b")):
        return old[2:], new[2:]
    return old, new


def _envelope(patch: FilePatch) -> tuple[str, str]:
    return f"*** Begin Patch\n*** Update File: {patch.path}\n", "\n*** End Patch"


def _as_edit(patch: FilePatch, head: str, tail: str) -> list[PatchedFile]:
    """Return the edit of one file, none when it names no file or changes nothing."""
    if not patch.path:
        return []
    if patch.action == "delete":
        return [PatchedFile(patch.path, None)]
    if patch.action == "add":
        return [PatchedFile(patch.path, new_body(patch.content))]
    if not patch.source or not any(hunk.changes for hunk in patch.hunks):
        return [PatchedFile(patch.path, "", patch.moved_to)] if patch.moved_to else []
    if patch.path.endswith(PATCH_ENDINGS):
        # Only this form says beyond doubt that the body edits the patch file and is not its new text.
        head, tail = _envelope(patch)
    # A blank line at the end is one only with its own end.
    tail = tail or "\n" * (not patch.source[-1])
    return [PatchedFile(patch.path, head + "\n".join(patch.source) + tail, patch.moved_to)]

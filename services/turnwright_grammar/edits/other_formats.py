"""Bodies in the formats of other editors, converted to our operations if they are unambiguous.

| form | taken when |
|---|---|
| conflict blocks, `<<<<<<< SEARCH` or with git's names | nothing but blocks, fences and a file name is in the body |
| a unified diff, with or without names and numbers | the whole body is one, and the entry is no patch file |
| `apply_patch` | the whole body is one |

A body that begins as one of them beyond doubt and goes on as none is an error, because the other
reading, a whole new text, would put the markers into the file. What was meant as text can be written in
a `<<NEW` marker. Git's blocks, and diffs that take lines out, need an entry that exists: a new text may
hold such things.

Source: C25, and the rule that a body without markers replaces (RU270), which holds for all the rest.
"""

from __future__ import annotations

import re

from turnwright_core.patterns.lines import block_of
from turnwright_grammar.edits import conflicts
from turnwright_grammar.edits.diffs import PATCH_ENDINGS, BadPatch, FilePatch, read_patch
from turnwright_grammar.edits.hunks import Hunk
from turnwright_grammar.edits.operations import Edits, EditSyntaxError, Operation, marker_block
from turnwright_grammar.scanner import TextScanner

_GIT_HEAD = re.compile(r"<{7} \S")
_GIT_DIVIDER = re.compile(r"={7}\Z")
_GIT_TAIL = re.compile(r">{7}(?: [^\n]*)?\Z")
_START_LINE = re.compile(r"[ \t]*:start_line:[ \t]*(\d{1,9})[ \t\r]*$", re.MULTILINE)
_FENCE = re.compile(r"(?:`{3,}|~{3,})[^`]*\Z")
_MAY_BE_PATCH = re.compile(r"\s*(?:`{3}|~{3}|@@|--- |diff --git |Index: |\*\*\* |apply_patch|<<)")
_NO_NAME = re.compile(r"[\s<>|\"]")
_LITERALLY = "To write this text as it is, put it in <<NEW and NEW."


def read_conflicts(body: str, *, exists: bool) -> Edits | EditSyntaxError | None:
    """Return the edits of a body of conflict blocks; None when it is none. Never raises; linear.

    Git's names count only for an entry that exists: a new text may well hold a merge conflict.
    """
    if "<<<<<" not in body:
        return None
    lines = body.split("\n")
    first = next(index for index, line in enumerate(lines) if "<<<<<" in line)
    is_ours = conflicts.HEAD.match(lines[first])
    if not is_ours and (not exists or not _GIT_HEAD.match(lines[first].rstrip())):
        return None
    if not all(_is_wrapper_line(line) for line in lines[:first]):
        return None
    operations = _search_blocks(body) if is_ours else _git_blocks(lines)
    if operations is None:
        message = f"The conflict block is not complete: <<<<<<< SEARCH, =======, >>>>>>> REPLACE. {_LITERALLY}"
        return EditSyntaxError(message, first + 1)
    return Edits(tuple(operations), notes=("Conflict markers were read as SEARCH and REPLACE.",))


def _is_wrapper_line(line: str) -> bool:
    """What models write around blocks: fences, and the name of the file."""
    bare = line.strip()
    name = bare.strip("*#`: ")
    is_name = ("." in name or "/" in name) and not _NO_NAME.search(name)
    return not bare or is_name or _FENCE.match(bare) is not None or conflicts.file_name(bare) is not None


def _search_blocks(body: str) -> list[Operation] | None:
    scanner, position = TextScanner(body), 0
    operations: list[Operation] = []
    while head := scanner.search(conflicts.HEAD, position):
        block = conflicts.read_block(scanner, head)
        if isinstance(block, conflicts.BadBlock) or not _is_all_wrapper(body[position : head.start()]):
            return None
        hint = _START_LINE.match(body, min(head.end() + 1, len(body)))
        operations.append(_pair(block.search, block.replace, int(hint[1]) if hint else None))
        position = block.end
    return operations if operations and _is_all_wrapper(body[position:]) else None


def _is_all_wrapper(text: str) -> bool:
    return all(_is_wrapper_line(line) for line in text.split("\n"))


def _git_blocks(lines: list[str]) -> list[Operation] | None:
    operations: list[Operation] = []
    sides: list[list[str]] = []
    for line in (line.rstrip("\r") for line in lines):
        if not sides and _GIT_HEAD.match(line):
            sides = [[]]
        elif len(sides) == 1 and _GIT_DIVIDER.match(line):
            sides.append([])
        elif len(sides) == 2 and _GIT_TAIL.match(line):
            search, replacement = ("".join(text + "\n" for text in side) for side in sides)
            operations.append(_pair(search, replacement))
            sides = []
        elif sides and not (_GIT_HEAD.match(line) or line.startswith("|||||||")):
            sides[-1].append(line)
        elif sides or not _is_wrapper_line(line):
            return None
    return operations if operations and not sides else None


def _pair(search: str, replacement: str, line: int | None = None) -> Operation:
    return Operation("search_replace", search=marker_block(search), replace=marker_block(replacement), line=line)


def read_patches(body: str, *, exists: bool, path: str | None) -> Edits | EditSyntaxError | None:
    """Return the edits of a body that is a diff or an `apply_patch` text; None when it is none.

    Several files in one body, a removal and a move are errors: a `set` changes one entry. Never raises.
    """
    if not _MAY_BE_PATCH.match(body):
        return None
    is_explicit = body.lstrip().startswith(("*** ", "apply_patch", "```apply_patch"))
    if path is not None and path.endswith(PATCH_ENDINGS) and not is_explicit:
        return None
    patches = read_patch(body)
    if patches is None or (not exists and not is_explicit and not _may_patch(patches, path)):
        return None
    if isinstance(patches, BadPatch):
        return EditSyntaxError(f"The patch cannot be read from here on. {_LITERALLY}", patches.line)
    if len(patches) > 1 and len({(patch.path, patch.action) for patch in patches}) > 1:
        names = ", ".join(dict.fromkeys(patch.path or "(no name)" for patch in patches[:10]))
        return EditSyntaxError(f"The patch changes several files ({names}); write one set for each.", 1)
    return _patch_edits(patches)


def _may_patch(patches: list[FilePatch] | BadPatch, path: str | None) -> bool:
    """Whether a diff for an entry that does not exist can be more than a note about a diff.

    One that only adds lines makes the entry. Of the others a file's is meant as an edit, and fails; a text
    with a scheme, or for a path unknown, is kept as it is (C5: a body without markers replaces).
    """
    is_file = path is not None and "://" not in path
    if isinstance(patches, BadPatch):
        return False
    return is_file or all(patch.action == "add" or not any(hunk.old for hunk in patch.hunks) for patch in patches)


def _patch_edits(patches: list[FilePatch]) -> Edits | EditSyntaxError:
    note = ("The patch was read as edits.",)
    last = patches[-1]
    if last.action == "delete":
        return EditSyntaxError("A set does not remove; use rm.", 1)
    if last.moved_to is not None:
        return EditSyntaxError("A set does not move; use mv.", 1)
    if last.action == "add":
        return Edits((Operation("new", last.content),), notes=note)
    hunks = [hunk for patch in patches for hunk in patch.hunks if hunk.changes]
    return Edits(tuple(_hunk_edit(hunk) for hunk in hunks), notes=note)


def _hunk_edit(hunk: Hunk) -> Operation:
    search, new = block_of(hunk.old), block_of(hunk.new)
    return Operation("search_replace", search=search, replace=new, line=hunk.line, hunk=hunk)

"""Applying a `set` body to a text.

Errors of a model are values: `EditConflict` if a region was not found or is not unique, `EditSyntaxError` if the
markers are broken. A conflict's message says what to do next.

The style of the text stays: a file with CRLF gets CRLF in new text, a file that ends with a newline still does after a
whole replacement, one that begins with a byte order mark still does, and new text gets the indentation of the file.

Source: RU263 to RU272, C5, C37, C52, C57, C61.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnwright_core.patterns.lines import Lines, block_of, lines_in, with_line_ends_of
from turnwright_core.patterns.replacing import Replacement, replace_region
from turnwright_grammar.edits.hunk_matching import AppliedEdit, EditMismatch, apply_hunk, replace_nearest
from turnwright_grammar.edits.hunks import Hunk
from turnwright_grammar.edits.markers import Edits, EditSyntaxError, Operation, parse_body
from turnwright_grammar.edits.substitution import run_sed_command, runs_regex

_BOM: Final = "\ufeff"

OPERATIONS_MAX = 5_000
READ_CHARS_MAX = 50_000_000
"""Each operation reads the whole text: all but the first together read at most this many characters."""

REGEXES_MAX = 20
"""Each of a body's regexes may take its whole deadline."""


class EditResult(Struct, frozen=True):
    """The edited text. `created`: there was none before. `notes` are about inexact matches."""

    text: str
    created: bool = False
    notes: tuple[str, ...] = ()


class EditConflict(Struct, frozen=True):
    """An operation that does not match the text (status 409); nothing was applied. `operation` counts from 1.

    `lines` are the first lines of the candidates, or of the most similar region; the message names them and says what
    to do next.
    """

    message: str
    operation: int
    lines: tuple[int, ...] = ()


def apply_edit(
    original: str | None, body: str, *, path: str | None = None
) -> EditResult | EditConflict | EditSyntaxError:
    """Apply a `set` body to `original` (None for a new entry).

    The entry's `path` distinguishes the new text of a patch file from a patch. Operations apply in order; the first
    conflict discards all. Never raises.
    """
    edits = parse_body(body, exists=original is not None, path=path)
    if isinstance(edits, EditSyntaxError):
        return edits
    return apply_edits(original, edits)


def apply_edits(original: str | None, edits: Edits) -> EditResult | EditConflict:
    """Apply parsed operations; see `apply_edit`."""
    text = original or ""
    if not text.startswith(_BOM):
        return _applied(text, edits, created=original is None)
    # Models do not see the mark, so it is no part of the first line. A search that names it is tried with it.
    bare = text.lstrip(_BOM)
    result = _applied(bare, edits)
    if isinstance(result, EditConflict) and any(map(_names_mark, edits.operations)):
        with_mark = _applied(text, edits)
        return result if isinstance(with_mark, EditConflict) else with_mark
    if isinstance(result, EditConflict):
        return result
    # A new text may bring the mark with it; what an edit puts in is meant so.
    is_whole = any(operation.kind in ("new", "replace") for operation in edits.operations)
    edited = result.text.lstrip(_BOM) if is_whole else result.text
    return replace(result, text=text.removesuffix(bare) + edited)


def _names_mark(operation: Operation) -> bool:
    return any(_BOM in line for line in (operation.search, *(operation.hunk.old if operation.hunk else ())))


def _applied(text: str, edits: Edits, *, created: bool = False) -> EditResult | EditConflict:
    # Edited with LF and converted back: between two operations the text may have no line end.
    is_crlf = "\n" in text and text.count("\n") == text.count("\r\n")
    draft = _EditBuffer(text.replace("\r\n", "\n") if is_crlf else text)
    for number, operation in enumerate(edits.operations, start=1):
        mismatch = draft.apply(operation)
        if mismatch is not None:
            return EditConflict(f"{_label(operation)} {number} {mismatch.reason}", number, mismatch.lines)
    edited = draft.text.replace("\r\n", "\n").replace("\n", "\r\n") if is_crlf else draft.text
    return EditResult(edited, created, (*edits.notes, *draft.notes))


def _label(operation: Operation) -> str:
    if operation.hunk is not None:
        return "Hunk"
    return {"delete": "DELETE", "substitute": "Sed command"}.get(operation.kind, "SEARCH")


class _EditBuffer:
    """The text between operations, and how far the edits so far have shifted its lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.notes: list[str] = []
        self._moves: list[tuple[int, int]] = []
        self._floor = 0
        self._offset = 0
        self._count = 0
        self._read_chars = 0
        self._regexes = 0

    def apply(self, operation: Operation) -> EditMismatch | None:
        """Apply one operation; if it does not match, return why and leave the text as it was."""
        result = self._over_limit(operation) or self._applied(operation)
        if isinstance(result, EditMismatch):
            return result
        added = result.text.count("\n") - self.text.count("\n")
        if added:
            self._moves.append((result.last_line, added))
        self._floor = max(0, result.last_line + added)
        self.text = result.text
        if result.note:
            self.notes.append(f"{_label(operation)} {self._count} {result.note}")
        return None

    def _over_limit(self, operation: Operation) -> EditMismatch | None:
        self._count += 1
        self._read_chars += len(self.text) if self._count > 1 else 0
        self._regexes += runs_regex(self.text, operation)
        if self._regexes > REGEXES_MAX:
            return EditMismatch(
                f"is one regex too many: a body runs at most {REGEXES_MAX}. Name the rest with <<SEARCH."
            )
        if self._count > OPERATIONS_MAX or self._read_chars > READ_CHARS_MAX:
            return EditMismatch(
                "is one edit too many for this text; write the whole text in <<NEW, or set in several steps."
            )
        return None

    def _applied(self, operation: Operation) -> AppliedEdit | EditMismatch:
        text = self.text
        line = self._moved(operation.line)
        if operation.hunk is not None:
            return self._placed(operation.hunk, line)
        match operation.kind:
            case "search_replace":
                return _searched(text, operation.search, operation.replace, line)
            case "substitute":
                return run_sed_command(text, operation)
            case "delete":
                return _deleted(text, operation.content)
            case "new" | "replace" | "prepend" | "append":
                return _written(text, operation)

    def _placed(self, hunk: Hunk, line: int | None) -> AppliedEdit | EditMismatch:
        if line is None or not hunk.old:
            return apply_hunk(self.text, hunk, line, self._floor)
        result = apply_hunk(self.text, hunk, line + self._offset, self._floor)
        if isinstance(result, AppliedEdit):
            # Errors in line numbers repeat: a model that is off by some lines is off by as many in the next hunk.
            self._offset = result.first_line - line
        return result

    def _moved(self, line: int | None) -> int | None:
        """The current number of a line of the original text."""
        if line is None:
            return None
        for last_line, added in self._moves:
            line += added if line > last_line else 0
        return line


def _written(text: str, operation: Operation) -> AppliedEdit:
    content = _in_line_ends_of(text, operation.content)
    end, line_end = text.count("\n") + 1, with_line_ends_of(text, "\n")
    match operation.kind:
        case "prepend":
            return AppliedEdit(_joined(text, content, text) if operation.adds_lines else content + text, 1, 0)
        case "append":
            if operation.adds_lines and text.endswith("\n") and content and not content.endswith("\n"):
                content += line_end
            return AppliedEdit(_joined(text, text, content) if operation.adds_lines else text + content, end, end)
        case _:
            return AppliedEdit(_whole(text, content), 1, end)


def _joined(text: str, before: str, behind: str) -> str:
    """Two parts with one line break between them if neither brings it (C61)."""
    is_joined = not before or not behind or before.endswith("\n") or behind.startswith(("\n", "\r\n"))
    return before + ("" if is_joined else with_line_ends_of(text, "\n")) + behind


def _in_line_ends_of(text: str, content: str) -> str:
    r"""Return `content` with the line ends of `text`; without `\r\n` too where the text has none."""
    if "\n" in text and "\r\n" not in text:
        return content.replace("\r\n", "\n")
    return with_line_ends_of(text, content)


def _whole(text: str, content: str) -> str:
    if not text:
        return content
    if text.endswith("\n") and content and not content.endswith("\n"):
        content += "\r\n" if text.endswith("\r\n") else "\n"
    return content


def _deleted(text: str, search: str) -> AppliedEdit | EditMismatch:
    if not search.strip():
        return EditMismatch("is empty: write the text to remove.")
    return replace_nearest(text, search, "", None)


def _searched(text: str, search: str, new: str, line: int | None) -> AppliedEdit | EditMismatch:
    new = _in_line_ends_of(text, new)
    if not search.strip():
        return _blank_searched(text, search, new, line)
    result = replace_nearest(text, search, new, line)
    if isinstance(result, AppliedEdit):
        return result
    pairs = elided_pairs(search, new)
    after = replace_elided(text, pairs) if pairs else None
    return result if after is None else AppliedEdit(after, 1, 1, "left lines out with `...`; they stayed.")


def _blank_searched(text: str, search: str, new: str, line: int | None) -> AppliedEdit | EditMismatch:
    """A search for nothing but blanks: those blanks if they occur once, else the end of the text."""
    if not search and line is not None:
        return apply_hunk(text, Hunk(tuple("+" + added for added in lines_in(new))), line - 1)
    result = replace_nearest(text, search, new, line)
    has_blanks = any(not bare.strip() for bare in Lines(text).bare)
    if (
        isinstance(result, AppliedEdit)
        or result.lines
        or (search and (has_blanks or "\n" in search.removesuffix("\n")))
    ):
        return result
    return _appended(text, "\n".join(lines_in(new)))


def _appended(text: str, new: str) -> AppliedEdit:
    end = text.count("\n") + 1
    joint = "\n" if text and not text.endswith("\n") else ""
    ended = new if not text or not new or new.endswith("\n") else new + "\n"
    after = text + _in_line_ends_of(text, joint + ended)
    return AppliedEdit(after, end, end, "is empty; its REPLACE was added at the end." if text else None)


_MARKS = frozenset({"...", "\u2026"})


def elided_pairs(search: str, replacement: str) -> list[tuple[str, str]] | None:
    """Pair the parts of a search around `...` with those of its replacement; None without `...` or if they differ."""
    pieces, counterparts = _pieces(search), _pieces(replacement)
    if len(pieces) < 2 or len(pieces) != len(counterparts):
        return None
    pairs = [pair for pair in zip(pieces, counterparts, strict=True) if pair != ("", "")]
    return pairs if pairs and all(piece.strip() for piece, _ in pairs) else None


def replace_elided(text: str, pairs: list[tuple[str, str]]) -> str | None:
    """Replace every part, each after the previous one; None if one is not found or not unique."""
    done = ""
    for piece, counterpart in pairs:
        result = replace_region(text, piece, counterpart)
        if not isinstance(result, Replacement):
            return None
        end = len(result.text) - (len(text) - result.place.end)
        # A part ends with its line end.
        end += result.text.startswith("\r\n", end) * 2 or result.text.startswith("\n", end)
        done, text = done + result.text[:end], result.text[end:]
    return done + text


def _pieces(text: str) -> list[str]:
    pieces: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.strip() in _MARKS:
            pieces.append([])
        else:
            pieces[-1].append(line)
    return [block_of(piece) for piece in pieces]

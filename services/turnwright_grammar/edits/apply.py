"""Applying a `set` body to a text.

Everything that a model can get wrong is a value: `EditConflict` when a region is not there or not
unique, `EditSyntaxError` when the markers are broken. A conflict's message tells what to do next.

The text keeps its habits: a file with CRLF line ends gets CRLF in what is put into it, a file that
ends with a newline still does after a whole replacement, and a region that was found under another
indentation is replaced under the file's.

Source: RU263 to RU272, C5, C37, C52, C57, and the decision that PREPEND and APPEND add nothing of their own.
"""

from __future__ import annotations

from msgspec import Struct

from turnwright_core.patterns import Lines, Replacement, block_of, lines_in, replace_region, with_line_ends_of
from turnwright_grammar.edits.hunks import Hunk
from turnwright_grammar.edits.markers import Edits, EditSyntaxError, Operation, parse_body
from turnwright_grammar.edits.mismatch import EditMismatch
from turnwright_grammar.edits.placing import Placed, place_hunk, replace_nearest
from turnwright_grammar.edits.substitution import runs_regex, substitute

OPERATIONS_MAX = 5_000
READ_CHARS_MAX = 50_000_000
"""Each operation reads the whole text: all but the first together read at most this many characters."""

REGEXES_MAX = 20
"""Each of a body's regexes may take its whole deadline."""


class EditResult(Struct, frozen=True):
    """The edited text. `created` says that there was none before; `notes` tell of leniency."""

    text: str
    created: bool = False
    notes: tuple[str, ...] = ()


class EditConflict(Struct, frozen=True):
    """An operation that does not fit the text (status 409). `operation` counts from 1.

    `lines` are the first lines of the candidates, or of the most similar region; the message names
    them and says what to do next. Nothing was applied.
    """

    message: str
    operation: int
    lines: tuple[int, ...] = ()


def apply_edit(
    original: str | None, body: str, *, path: str | None = None
) -> EditResult | EditConflict | EditSyntaxError:
    """Return `original` (None when there is no entry yet) edited by a `set` body.

    `path` is the entry's; it tells the new text of a patch file from a patch. Operations apply in order,
    each to the text that the one before left; the first conflict discards all. Never raises.
    """
    edits = parse_body(body, exists=original is not None, path=path)
    if isinstance(edits, EditSyntaxError):
        return edits
    return apply_edits(original, edits)


def apply_edits(original: str | None, edits: Edits) -> EditResult | EditConflict:
    """Apply parsed operations; see `apply_edit`."""
    text = original or ""
    # Kept aside while it is edited: between two operations a text may have no line end that tells its habit.
    is_crlf = "\n" in text and text.count("\n") == text.count("\r\n")
    draft = _Draft(text.replace("\r\n", "\n") if is_crlf else text)
    for number, operation in enumerate(edits.operations, start=1):
        mismatch = draft.apply(operation)
        if mismatch is not None:
            return EditConflict(f"{_label(operation)} {number} {mismatch.reason}", number, mismatch.lines)
    edited = draft.text.replace("\r\n", "\n").replace("\n", "\r\n") if is_crlf else draft.text
    return EditResult(edited, created=original is None, notes=(*edits.notes, *draft.notes))


def _label(operation: Operation) -> str:
    if operation.hunk is not None:
        return "Hunk"
    return {"delete": "DELETE", "substitute": "Sed command"}.get(operation.kind, "SEARCH")


class _Draft:
    """The text between operations, and how far the edits so far have moved its lines."""

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
        """Apply one operation; return why it does not fit, with the text as it was."""
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

    def _applied(self, operation: Operation) -> Placed | EditMismatch:
        text = self.text
        line = self._moved(operation.line)
        if operation.hunk is not None:
            return self._placed(operation.hunk, line)
        match operation.kind:
            case "search_replace":
                return _searched(text, operation.search, operation.replace, line)
            case "substitute":
                return substitute(text, operation)
            case "delete":
                return _deleted(text, operation.content)
            case "new" | "replace" | "prepend" | "append":
                return _written(text, operation)

    def _placed(self, hunk: Hunk, line: int | None) -> Placed | EditMismatch:
        if line is None or not hunk.old:
            return place_hunk(self.text, hunk, line, self._floor)
        result = place_hunk(self.text, hunk, line + self._offset, self._floor)
        if isinstance(result, Placed):
            # Who is wrong about one line number is as wrong about the next.
            self._offset = result.first_line - line
        return result

    def _moved(self, line: int | None) -> int | None:
        """Where a line of the text before all edits is now."""
        if line is None:
            return None
        for last_line, added in self._moves:
            line += added if line > last_line else 0
        return line


def _written(text: str, operation: Operation) -> Placed:
    content = _in_line_ends_of(text, operation.content)
    end = text.count("\n") + 1
    match operation.kind:
        case "prepend":
            return Placed(content + text, 1, 0)
        case "append":
            return Placed(text + content, end, end)
        case _:
            return Placed(_whole(text, content), 1, end)


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


def _deleted(text: str, search: str) -> Placed | EditMismatch:
    if not search.strip():
        return EditMismatch("is empty: write the text to remove.")
    return replace_nearest(text, search, "", None)


def _searched(text: str, search: str, new: str, line: int | None) -> Placed | EditMismatch:
    new = _in_line_ends_of(text, new)
    if not search.strip():
        return _blank_searched(text, search, new, line)
    result = replace_nearest(text, search, new, line)
    if isinstance(result, Placed):
        return result
    pairs = elided_pairs(search, new)
    after = replace_elided(text, pairs) if pairs else None
    return result if after is None else Placed(after, 1, 1, "left lines out with `...`; they stayed.")


def _blank_searched(text: str, search: str, new: str, line: int | None) -> Placed | EditMismatch:
    """A search without anything to see: the blanks if they are there once, else the end of the text."""
    if not search and line is not None:
        return place_hunk(text, Hunk(tuple("+" + added for added in lines_in(new))), line - 1)
    result = replace_nearest(text, search, new, line)
    has_blanks = any(not bare.strip() for bare in Lines(text).bare)
    if isinstance(result, Placed) or result.lines or (search and (has_blanks or "\n" in search.removesuffix("\n"))):
        return result
    return _appended(text, "\n".join(lines_in(new)))


def _appended(text: str, new: str) -> Placed:
    end = text.count("\n") + 1
    joint = "\n" if text and not text.endswith("\n") else ""
    ended = new if not text or not new or new.endswith("\n") else new + "\n"
    after = text + _in_line_ends_of(text, joint + ended)
    return Placed(after, end, end, "is empty; its REPLACE was added at the end." if text else None)


_MARKS = frozenset({"...", "\u2026"})


def elided_pairs(search: str, replacement: str) -> list[tuple[str, str]] | None:
    """Return the pieces of a search with those of its replacement; None when nothing is left out, or not alike."""
    pieces, counterparts = _pieces(search), _pieces(replacement)
    if len(pieces) < 2 or len(pieces) != len(counterparts):
        return None
    pairs = [pair for pair in zip(pieces, counterparts, strict=True) if pair != ("", "")]
    return pairs if pairs and all(piece.strip() for piece, _ in pairs) else None


def replace_elided(text: str, pairs: list[tuple[str, str]]) -> str | None:
    """Return `text` with every piece replaced, each behind the one before; None when one does not fit one place."""
    done = ""
    for piece, counterpart in pairs:
        result = replace_region(text, piece, counterpart)
        if not isinstance(result, Replacement):
            return None
        end = len(result.text) - (len(text) - result.place.end)
        # The rest of the last line is no line of its own.
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

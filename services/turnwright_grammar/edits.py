"""Applying a `set` body to a text.

Everything that a model can get wrong is a value: `EditConflict` when a region is not there or not
unique, `EditSyntaxError` when the markers are broken. A conflict's message tells what to do next.

The text keeps its habits: a file with CRLF line ends gets CRLF in what is put into it, a file that
ends with a newline still does after a whole replacement, and a region that was found under another
indentation is replaced under the file's.

Source: RU263 to RU272, C5, C37, and the decision that PREPEND and APPEND add nothing of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnwright_grammar.indentation import reindented
from turnwright_grammar.markers import Edits, EditSyntaxError, Operation, parse_body
from turnwright_grammar.matching import Found, Lines, Place, find_region, without_numbers
from turnwright_grammar.similar import nearest_region

_FUZZY_LINES = frozenset({"trailing", "indented", "spaced", "blanks", "unnumbered"})


@dataclass(frozen=True, slots=True)
class EditResult:
    """The edited text. `created` says that there was none before; `notes` tell of leniency."""

    text: str
    created: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EditConflict:
    """An operation that does not fit the text (status 409). `operation` counts from 1.

    `lines` are the first lines of the candidates, or of the most similar region; the message names
    them and says what to do next. Nothing was applied.
    """

    message: str
    operation: int
    lines: tuple[int, ...] = ()


def apply_edit(original: str | None, body: str) -> EditResult | EditConflict | EditSyntaxError:
    """Return `original` (None when there is no entry yet) edited by a `set` body.

    Operations apply in order, each to the text that the one before left; the first conflict
    discards all. Never raises.
    """
    edits = parse_body(body, exists=original is not None)
    if isinstance(edits, EditSyntaxError):
        return edits
    return apply_edits(original, edits)


def apply_edits(original: str | None, edits: Edits) -> EditResult | EditConflict:
    """Apply parsed operations; see `apply_edit`."""
    text = original
    notes = list(edits.notes)
    for number, operation in enumerate(edits.operations, start=1):
        applied = _applied(text, operation, number)
        if isinstance(applied, EditConflict):
            return applied
        text, note = applied
        if note:
            notes.append(note)
    return EditResult(text or "", created=original is None, notes=tuple(notes))


def _applied(text: str | None, operation: Operation, number: int) -> tuple[str, str | None] | EditConflict:
    match operation.kind:
        case "new" | "replace":
            return _whole(text, operation.content), None
        case "prepend":
            return _with_line_ends(operation.content, text or "") + (text or ""), None
        case "append":
            return (text or "") + _with_line_ends(operation.content, text or ""), None
        case "delete":
            return _edited(text, operation.content, "", number, "DELETE")
        case "search_replace":
            if operation.every and operation.search in (text or ""):
                return (text or "").replace(operation.search, operation.replace), None
            return _edited(text, operation.search, operation.replace, number, "SEARCH")


def _whole(text: str | None, content: str) -> str:
    if not text:
        return content
    if text.endswith("\n") and content and not content.endswith("\n"):
        content += "\n"
    return _with_line_ends(content, text)


def _with_line_ends(content: str, text: str) -> str:
    crlf = text.count("\r\n")
    if not crlf or crlf * 2 < text.count("\n"):
        return content
    return content.replace("\r\n", "\n").replace("\n", "\r\n")


def _edited(text: str | None, search: str, new: str, number: int, word: str) -> tuple[str, str | None] | EditConflict:
    text = text or ""
    if not search.strip():
        return _blank_search(text, search, new, number, word)
    found = find_region(text, search)
    if not found.places:
        return _not_found(text, search, number, word)
    if len(found.places) > 1:
        return _ambiguous(found, number, word)
    place = found.places[0]
    note = None
    if found.way not in ("lines", "exact"):
        note = f"{word} {number} matched lines {place.first_line}-{place.last_line} with other whitespace."
    return _replaced(text, place, found, search, new), note


def _blank_search(text: str, search: str, new: str, number: int, word: str) -> tuple[str, str | None] | EditConflict:
    if word == "DELETE":
        return EditConflict(f"{word} {number} is empty: write the text to remove.", number)
    if search.strip(" \t") == "" and search:
        # A line of just these blanks, if there is one.
        found = _blank_lines(text, search)
        if len(found) == 1:
            place = found[0]
            return text[: place.start] + _with_line_ends(new, text) + text[place.end :], None
    joint = "" if not text or text.endswith("\n") else _with_line_ends("\n", text)
    ended = new if not text or not new or new.endswith("\n") else new + "\n"
    return text + joint + _with_line_ends(ended, text), f"An empty {word} appends at the end."


def _blank_lines(text: str, search: str) -> list[Place]:
    lines = Lines(text)
    return [lines.region(index, index) for index, line in enumerate(lines.bare) if line == search]


def _replaced(text: str, place: Place, found: Found, search: str, new: str) -> str:
    if found.way == "unnumbered":
        search, new = without_numbers(search) or search, without_numbers(new) or new
    start, end = place.start, place.end
    line_start = text.rfind("\n", 0, start) + 1
    before = text[line_start:start]
    ends_line = text.startswith(("\n", "\r\n"), end) or end == len(text)
    if found.way in _FUZZY_LINES:
        new = reindented(search, text[start:end], new)
    elif found.way == "exact" and before and not before.strip() and ends_line:
        new = reindented(search, before + text[start:end], new).removeprefix(before)
    if found.way in _FUZZY_LINES | {"lines"}:
        new = new.removesuffix("\n")
    if not new and ends_line and not before.strip() and end < len(text):
        # A region of whole lines disappears with its line end.
        start, end = line_start, end + (2 if text.startswith("\r\n", end) else 1)
    elif found.way == "exact" and search.endswith("\n") and not new.endswith("\n"):
        new += "\n" if new else ""
    return text[:start] + _with_line_ends(new, text) + text[end:]


def _not_found(text: str, search: str, number: int, word: str) -> EditConflict:
    head = f"{word} {number} was not found in the current text."
    if not text:
        return EditConflict(f"{head} The entry is empty or does not exist; use <<NEW ... NEW to write it.", number)
    nearest = nearest_region(text, search)
    if nearest is None:
        return EditConflict(f"{head} Nothing similar is there; get the entry and copy the text exactly.", number)
    shown = "\n".join(f"{nearest.first_line + index}: {line}" for index, line in enumerate(nearest.lines))
    last = nearest.first_line + len(nearest.lines) - 1
    where = f"The most similar lines are {nearest.first_line}-{last}:"
    message = f"{head} {where}\n{shown}\nCopy the text exactly from there."
    return EditConflict(message, number, (nearest.first_line,))


def _ambiguous(found: Found, number: int, word: str) -> EditConflict:
    lines = tuple(dict.fromkeys(place.first_line for place in found.places))
    listed = ", ".join(str(line) for line in lines)
    message = (
        f"{word} {number} fits {len(found.places)} places equally well, on lines {listed}. "
        "Add neighbouring lines to it until it fits one."
    )
    return EditConflict(message, number, lines)

"""SEARCH and REPLACE pairs with malformed markers.

Two shapes are read, and only where the whole body is pairs of them, each closed, for an entry that exists:

* openers alone on their line as `<< SEARCH`, `<<search`, `<<SEARCH>>`, closed by the bare word or as `</SEARCH>`
* tags: `<search>old</search><replace>new</replace>`

The other reading, a whole new text, would put the markers into the file. A single near miss (`<<new x new`)
stays plain text: nothing shows that it was meant.

Source: RU260, RU270.
"""

from __future__ import annotations

import re

from turnwright_grammar.edits.operations import Edits, Operation, marker_block

_LINE = re.compile(
    r"(?P<open><{1,3})?[ \t]*(?P<slash>/)?[ \t]*(?P<word>search|replace)(?P<suffix>\d*)[ \t]*(?:>{1,3})?\Z",
    re.IGNORECASE,
)
_TAG = re.compile(r"\s*<search>", re.IGNORECASE)
_TAGS_BETWEEN = re.compile(r"</search>\s*<replace>", re.IGNORECASE)
_TAG_CLOSE = re.compile(r"</replace>(?=\s*(?:<search>|\Z))", re.IGNORECASE)
_TO_LINE_END = re.compile(r"\A[ \t]*\r?\n")
_NOTE = "Markers that are nearly ours were read as <<SEARCH ... SEARCH <<REPLACE ... REPLACE."

_Mark = re.Match[str]


def read_malformed_markers(body: str) -> Edits | None:
    """Return the edits of such a body, else None. Never raises; linear."""
    if not body.lstrip().startswith("<"):
        return None
    pairs = _line_pairs(body.split("\n")) or _tag_pairs(body)
    operations = tuple(Operation("search_replace", search=search, replace=new) for search, new in pairs)
    return Edits(operations, notes=(_NOTE,)) if operations else None


def _line_pairs(lines: list[str]) -> list[tuple[str, str]]:
    marks = {index: mark for index, line in enumerate(lines) if (mark := _LINE.match(line.strip()))}
    following = _following(lines)
    pairs: list[tuple[str, str]] = []
    at = following[0]
    while at < len(lines):
        search_end = _end(marks, following, at, "search")
        middle = following[search_end + 1] if search_end else len(lines)
        replace_end = _end(marks, following, middle, "replace")
        if not search_end or not replace_end:
            return []
        pairs.append((_joined(lines[at + 1 : search_end]), _joined(lines[middle + 1 : replace_end])))
        at = following[replace_end + 1]
    return pairs


def _joined(lines: list[str]) -> str:
    return marker_block("".join(line + "\n" for line in lines))


def _following(lines: list[str]) -> list[int]:
    """For each index, and the end, the first line from there on that is not blank."""
    following = [len(lines)] * (len(lines) + 1)
    for index in range(len(lines) - 1, -1, -1):
        following[index] = index if lines[index].strip() else following[index + 1]
    return following


def _end(marks: dict[int, _Mark], following: list[int], at: int, word: str) -> int | None:
    """Where the marker that opens on line `at` is closed: another opens behind it, or the text ends."""
    opener = marks.get(at)
    if opener is None or not opener["open"] or opener["slash"] or opener["word"].lower() != word:
        return None
    text_end = len(following) - 1
    for index in range(at + 1, text_end):
        mark = marks.get(index)
        if mark is None or not _closes(mark, opener):
            continue
        after = marks.get(following[index + 1])
        opens_next = after is not None and bool(after["open"]) and after["word"].lower() != word
        if opens_next or (word == "replace" and following[index + 1] == text_end):
            return index
    return None


def _closes(mark: _Mark, opener: _Mark) -> bool:
    is_same = (mark["word"].lower(), mark["suffix"]) == (opener["word"].lower(), opener["suffix"])
    return is_same and (bool(mark["slash"]) or not mark["open"])


def _tag_pairs(body: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    position, end = 0, len(body.rstrip())
    while position < end:
        opening = _TAG.match(body, position)
        middle = _TAGS_BETWEEN.search(body, opening.end()) if opening else None
        closing = _TAG_CLOSE.search(body, middle.end()) if middle else None
        if opening is None or middle is None or closing is None:
            return []
        search, new = body[opening.end() : middle.start()], body[middle.end() : closing.start()]
        pairs.append((_content(search), _content(new)))
        position = closing.end()
    return pairs


def _content(text: str) -> str:
    return marker_block(_TO_LINE_END.sub("", text))

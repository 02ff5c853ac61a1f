"""The marker grammar of a `set` body: `<<SEARCH old SEARCH <<REPLACE new REPLACE` and its family.

    body      = plain | { text marker }
    marker    = "<<" IDENT content IDENT
    IDENT     = KEYWORD [ suffix ] | other
    KEYWORD   = NEW | PREPEND | APPEND | REPLACE | DELETE | SEARCH
    suffix    = a digit or "_", then letters, digits, "_"

An opener stands at the start of the body, after a space or after `>`; a closer is the bare IDENT
between spaces. One newline, or one space, on either side of the content belongs to the marker; every other
line of a SEARCH and its REPLACE counts, blank ones at an end too.
Another IDENT (`<<EOF`) replaces the whole body, and only when it is the first thing in the body:
a shell script that holds a heredoc is a plain body. A body in the packet's shape, `<<:::path` to
`:::path`, is plain whatever it holds.

Where several closers could end a marker, one that is alone on its line or has nothing but the next
opener behind it wins over one within a sentence; text that no marker holds would be lost. What models
write for a closer (`SEARCH>>`, `<</SEARCH`, `<<END`) ends a marker too where the next opener or the end
of the body follows at once.

Source: the seed's "Edit Syntax", RU260 to RU271, C1, C21, C57.
"""

from __future__ import annotations

import re
from bisect import bisect_left

from msgspec import Struct

from turnwright_grammar.edits.operations import Edits, EditSyntaxError, Operation, OperationKind, marker_block
from turnwright_grammar.edits.other_formats import read_conflicts, read_patches
from turnwright_grammar.edits.substitution import parse_sed

# SEARCH and REPLACE pairs with malformed markers.
#
# Two shapes are read, and only where the whole body is pairs of them, each closed, for an entry that exists:
#
# * openers alone on their line as `<< SEARCH`, `<<search`, `<<SEARCH>>`, closed by the bare word or as `</SEARCH>`
# * tags: `<search>old</search><replace>new</replace>`
#
# The other reading, a whole new text, would put the markers into the file. A single near miss (`<<new x new`)
# stays plain text: nothing shows that it was meant.
#
# Source: RU260, RU270.

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
        pairs.append((_malformed_content(search), _malformed_content(new)))
        position = closing.end()
    return pairs


def _malformed_content(text: str) -> str:
    return marker_block(_TO_LINE_END.sub("", text))


__all__ = ["EditSyntaxError", "Edits", "Operation", "OperationKind", "is_unfinished", "parse_body"]

_KEYWORDS: dict[str, OperationKind] = {
    "NEW": "new",
    "PREPEND": "prepend",
    "APPEND": "append",
    "REPLACE": "replace",
    "DELETE": "delete",
    "SEARCH": "search_replace",
}
_IDENT = re.compile(r"(?P<keyword>NEW|PREPEND|APPEND|REPLACE|DELETE|SEARCH)(?:[0-9_]\w*)?\Z")
# What stands before is looked at last: a pattern that begins with plain characters is searched much faster.
_OPENER = re.compile(r"<<(?<![^\s>]<<)(?P<ident>[A-Z][A-Za-z0-9_]*+)(?=\s|\Z)")
_CLOSER = re.compile(
    r"""(?<!\S)(?:
      (?P<any><<END(?:>>)?)(?![ ][A-Z])
    | (?P<ident>[A-Z][A-Za-z0-9_]*+)(?:>>?|<<|;)?
    | (?:</?|<</?|>>|/)(?:END[ ])?(?P<wrapped>[A-Z][A-Za-z0-9_]*+)(?:>>?)?
    )(?!\S)""",
    re.VERBOSE,
)
_PACKET = re.compile(r"\s*<<(?P<closer>(?::::|!!!)\S+)\s")
_ANY = ""
_OPENS_NEXT = re.compile(r"\s*(?:<<[A-Z]|\Z)")
_BLANK_TO_LINE_END = re.compile(r"[ \t]*\r?\n|[ \t]")
_BLANK_LINE = re.compile(r"\A[ \t]*\r?\n")
_FENCE_LINE = re.compile(r"^[ \t]*```", re.MULTILINE)
_LINE_CHARS_MAX = 200


class _Marker(Struct, frozen=True):
    ident: str
    content: str
    block: str
    start: int
    end: int
    odd: str = ""


def parse_body(body: str, *, exists: bool = True, path: str | None = None) -> Edits | EditSyntaxError:
    """Return the operations of a `set` body.

    `exists` says whether the entry has a body yet: sed, near misses and some diffs edit only what
    exists. `path` is the entry's: the text of a patch file is no patch of it. Never raises; linear in the
    length of the body.
    """
    if _is_packet(body):
        return _plain(body)
    foreign = read_conflicts(body, exists=exists) or read_patches(body, exists=exists, path=path)
    if foreign is not None:
        return foreign
    markers = _Markers(body).read()
    edits = markers if isinstance(markers, EditSyntaxError) else _operations(body, markers)
    if exists and (edits is None or isinstance(edits, EditSyntaxError)):
        edits = read_malformed_markers(body) or edits or parse_sed(body)
    return edits or _plain(body)


def is_unfinished(name: str, body: str) -> bool:
    """Whether a body stops inside a code fence or, for `set`, inside an edit marker that it opens with."""
    if len(_FENCE_LINE.findall(body)) % 2:
        return True
    return name == "set" and body.lstrip().startswith("<<") and isinstance(_Markers(body).read(), EditSyntaxError)


def _is_packet(body: str) -> bool:
    """Whether a body echoes how entries are shown, `<<:::path` to `:::path`, whatever is in it. Source: RU271, C65."""
    opener = _PACKET.match(body)
    return opener is not None and body.rstrip().endswith(opener["closer"])


def _plain(body: str) -> Edits:
    # `<set path="a">` and a newline: the newline belongs to the tag, not to the file.
    return Edits((Operation("replace", _BLANK_LINE.sub("", body, count=1)),), marked=False)


class _Markers:
    """Finds the markers of one body; the positions of openers and of all closers are indexed once."""

    def __init__(self, body: str) -> None:
        self.body = body
        self.first = len(body) - len(body.lstrip())
        self.openers: dict[str, list[int]] = {}
        self.closers: dict[str, list[int]] = {}
        self.clean: dict[str, list[int]] = {}
        self.last: dict[str, list[int]] = {}
        self.odd: dict[int, re.Match[str]] = {}
        for found in _OPENER.finditer(body):
            self.openers.setdefault(found["ident"], []).append(found.start())
        if self.openers:
            self._index()

    def _index(self) -> None:
        for found in _CLOSER.finditer(self.body):
            ident, start = found["ident"] or found["wrapped"] or _ANY, found.start()
            if ident not in self.openers and ident != _ANY:
                continue
            is_bare = found[0] == ident
            ends_text = _OPENS_NEXT.match(self.body, found.end()) is not None
            if not is_bare and not ends_text:
                continue
            if is_bare:
                self.closers.setdefault(ident, []).append(start)
            else:
                self.odd[start] = found
            if ends_text:
                self.last.setdefault(ident, []).append(start)
            if ends_text or self._is_alone(start, found.end()):
                self.clean.setdefault(ident, []).append(start)

    def _is_alone(self, start: int, end: int) -> bool:
        before = self.body[max(0, start - _LINE_CHARS_MAX) : start].rsplit("\n", 1)
        after = self.body[end : end + _LINE_CHARS_MAX].split("\n", 1)
        return len(before) == 2 and not before[1].strip() and not after[0].strip()

    def read(self) -> list[_Marker] | EditSyntaxError:
        """Return the markers in order, or the error of one that never ends."""
        markers: list[_Marker] = []
        position = 0
        while opener := _OPENER.search(self.body, position):
            is_ours = _IDENT.match(opener["ident"]) is not None
            marker = self._marker(opener) if is_ours or (not markers and opener.start() == self.first) else None
            if marker is not None:
                markers.append(marker)
                position = marker.end
            elif is_ours:
                return _unclosed(self.body, opener)
            else:
                # `<<EOF` further in, or without its end, is not ours.
                position = opener.end()
        return markers

    def _marker(self, opener: re.Match[str]) -> _Marker | None:
        ident, start = opener["ident"], opener.end()
        closer = self._closer(ident, start)
        if closer is None:
            return None
        odd = self.odd.get(closer)
        end = odd.end() if odd else closer + len(ident)
        content = _content(self.body, start, closer)
        # Between the lines of the markers nothing is no line, and one more line end is a blank one.
        is_blank = not content.strip() and content[-1:] in ("", "\n") and self.body.count("\n", start, closer) > 1
        block = content + "\n" if is_blank else content
        return _Marker(ident, content, block, opener.start(), end, odd[0] if odd else "")

    def _closer(self, ident: str, start: int) -> int | None:
        closer = _at_or_after(self.closers.get(ident), start)
        clean = self._earliest(self.clean, ident, start)
        if closer is None or (clean is not None and clean < closer):
            return clean
        # Beyond the next opener of the same name a closer is that one's.
        opener = _at_or_after(self.openers.get(ident), closer)
        for better in (self.clean, self.last):
            found = self._earliest(better, ident, closer)
            if found is not None and (opener is None or found < opener):
                closer = found
        return closer

    def _earliest(self, positions: dict[str, list[int]], ident: str, start: int) -> int | None:
        own, shared = _at_or_after(positions.get(ident), start), _at_or_after(positions.get(_ANY), start)
        return own if shared is None or (own is not None and own < shared) else shared


def _unclosed(body: str, opener: re.Match[str]) -> EditSyntaxError:
    line = body.count("\n", 0, opener.start()) + 1
    ident = opener["ident"]
    return EditSyntaxError(f"<<{ident} is never closed; end it with {ident} alone on a line.", line)


def _at_or_after(positions: list[int] | None, start: int) -> int | None:
    index = bisect_left(positions or (), start)
    return positions[index] if positions and index < len(positions) else None


def _content(body: str, start: int, end: int) -> str:
    opening = _BLANK_TO_LINE_END.match(body, start)
    start = min(end, opening.end()) if opening else start
    content = body[start:end]
    line_begin = content.rfind("\n") + 1
    if not content[line_begin:].strip():
        # The closer is alone on its line: its indentation and the newline before it are the marker's.
        content = content[:line_begin]
        return content.removesuffix("\n").removesuffix("\r") if line_begin else content.removesuffix(" ")
    return content[:-1] if content[-1:] in (" ", "\t") else content


def _operations(body: str, markers: list[_Marker]) -> Edits | EditSyntaxError | None:
    operations: list[Operation] = []
    search: _Marker | None = None
    for marker in markers:
        found = _IDENT.match(marker.ident)
        kind: OperationKind = _KEYWORDS[found["keyword"]] if found else "replace"
        if search is not None:
            if kind != "replace":
                return _sole_search(body, search)
            operations.append(Operation("search_replace", search=search.block, replace=marker.block))
            search = None
        elif kind == "search_replace":
            search = marker
        else:
            adds_lines = kind in ("prepend", "append") and "\n" in body[marker.start : marker.end]
            operations.append(Operation(kind, marker.content, adds_lines=adds_lines))
    if search is not None:
        return _sole_search(body, search)
    return _with_notes(body, markers, tuple(operations)) if operations else None


def _sole_search(body: str, search: _Marker) -> EditSyntaxError:
    line = body.count("\n", 0, search.start) + 1
    return EditSyntaxError(f"<<{search.ident} must be followed at once by <<REPLACE ... REPLACE.", line)


def _with_notes(body: str, markers: list[_Marker], operations: tuple[Operation, ...]) -> Edits:
    ends = [0, *(marker.end for marker in markers)]
    starts = [*(marker.start for marker in markers), len(body)]
    ignored = any(body[end:start].strip() for end, start in zip(ends, starts, strict=True))
    notes = ["Text outside the edit markers was ignored."] if ignored else []
    odd = next((marker for marker in markers if marker.odd), None)
    if odd is not None:
        notes.append(f"{odd.odd} was read as the end of <<{odd.ident}; write {odd.ident} alone on a line.")
    return Edits(operations, notes=tuple(notes))

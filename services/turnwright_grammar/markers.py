"""The marker grammar of a `set` body: `<<SEARCH old SEARCH <<REPLACE new REPLACE` and its family.

    body      = plain | { text marker }
    marker    = "<<" IDENT content IDENT
    IDENT     = KEYWORD [ suffix ] | other
    KEYWORD   = NEW | PREPEND | APPEND | REPLACE | DELETE | SEARCH
    suffix    = a digit or "_", then letters, digits, "_"

An opener stands at the start of the body, after a space or after `>`; a closer is the bare IDENT
between spaces. One newline, or one space, on either side of the content belongs to the marker.
Another IDENT (`<<EOF`) replaces the whole body, and only when it is the first thing in the body:
a shell script that holds a heredoc is a plain body. The packet shape `<<:::path` is plain too.

A body of nothing but complete sed commands edits an entry that exists. A body of nothing but
conflict blocks (`<<<<<<< SEARCH`) means their edits.

Source: the seed's "Edit Syntax", RU260 to RU271, RU283, C1, C5, C21.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Literal

from turnwright_grammar import conflicts
from turnwright_grammar.find import Finder

OperationKind = Literal["new", "prepend", "append", "replace", "delete", "search_replace"]

_KEYWORDS: dict[str, OperationKind] = {
    "NEW": "new",
    "PREPEND": "prepend",
    "APPEND": "append",
    "REPLACE": "replace",
    "DELETE": "delete",
    "SEARCH": "search_replace",
}
_IDENT = re.compile(r"(?P<keyword>NEW|PREPEND|APPEND|REPLACE|DELETE|SEARCH)(?:[0-9_]\w*)?\Z")
_OPENER = re.compile(r"(?:(?<=[\s>])|\A)<<(?P<ident>[A-Z][A-Za-z0-9_]*)(?=\s|\Z)")
_WORD = re.compile(r"(?<!\S)[A-Z][A-Za-z0-9_]*(?!\S)")
_OPENS_NEXT = re.compile(r"\s*(?:<<[A-Z]|\Z)")
_LINE_END = re.compile(r"[ \t]*\r?\n")
_BLANK_TO_LINE_END = re.compile(r"[ \t]*\r?\n|[ \t]")
_FENCE_LINE = re.compile(r"^[ \t]*```", re.MULTILINE)
_SED_HEAD = re.compile(r"\s*;?\s*s(?P<mark>[^\sA-Za-z0-9\\])")
_SED_FLAGS = re.compile(r"(?P<flags>[gimI]*)(?=\s|;|\Z)")


@dataclass(frozen=True, slots=True)
class Operation:
    """One edit. `content` serves all kinds but `search_replace`, which has `search` and `replace`.

    `every` asks for every occurrence (sed's `g`).
    """

    kind: OperationKind
    content: str = ""
    search: str = ""
    replace: str = ""
    every: bool = False


@dataclass(frozen=True, slots=True)
class EditSyntaxError:
    """A body that breaks the grammar. A value, not an exception: models write it. Source: RU269."""

    message: str
    line: int


@dataclass(frozen=True, slots=True)
class Edits:
    """The operations of a body in order.

    `marked` is false for a plain body; `ignored_chars` counts the text between markers, which means
    nothing; `notes` tell the model about both and about other leniency.
    """

    operations: tuple[Operation, ...]
    marked: bool = True
    ignored_chars: int = 0
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class _Marker:
    ident: str
    content: str
    start: int
    end: int


def parse_body(body: str, *, exists: bool = True) -> Edits | EditSyntaxError:
    """Return the operations of a `set` body. `exists` says whether the entry has a body yet.

    Never raises; linear in the length of the body.
    """
    markers = _Markers(body).read()
    if isinstance(markers, EditSyntaxError):
        return markers
    if markers:
        return _operations(body, markers)
    return _conflict_blocks(body) or (parse_sed(body) if exists else None) or _plain(body)


def is_unfinished(name: str, body: str) -> bool:
    """Whether a body stops inside a code fence or, for `set`, inside an edit marker that it opens with."""
    if len(_FENCE_LINE.findall(body)) % 2:
        return True
    return name == "set" and body.lstrip().startswith("<<") and isinstance(_Markers(body).read(), EditSyntaxError)


def parse_sed(body: str) -> Edits | None:
    """Return the edits of a body that is wholly sed commands, else None. Source: C5, RU283."""
    operations: list[Operation] = []
    position, end = 0, len(body.rstrip().rstrip(";"))
    while position < end:
        head = _SED_HEAD.match(body, position)
        if head is None or (operations and not body[position].isspace() and body[position] != ";"):
            return None
        part = re.compile(rf"((?:[^\\{re.escape(head['mark'])}]|\\.)*){re.escape(head['mark'])}", re.DOTALL)
        search = part.match(body, head.end())
        replacement = part.match(body, search.end()) if search else None
        flags = _SED_FLAGS.match(body, replacement.end()) if replacement else None
        if search is None or replacement is None or flags is None or not search[1]:
            return None
        old, new = (text.replace("\\" + head["mark"], head["mark"]) for text in (search[1], replacement[1]))
        operations.append(Operation("search_replace", search=old, replace=new, every="g" in flags["flags"]))
        position = flags.end()
    return Edits(tuple(operations)) if operations else None


def _plain(body: str) -> Edits:
    # `<set path="a">` and a newline: the newline belongs to the tag, not to the file.
    content = re.sub(r"\A[ \t]*\r?\n", "", body, count=1)
    return Edits((Operation("replace", content),), marked=False)


def _conflict_blocks(body: str) -> Edits | None:
    if not body.lstrip().startswith("<<<<<"):
        return None
    finder, position = Finder(body), 0
    operations: list[Operation] = []
    while head := finder.search(conflicts.HEAD, position):
        block = conflicts.read_block(finder, head)
        if isinstance(block, conflicts.BadBlock) or body[position : head.start()].strip():
            return None
        search, replacement = block.search.removesuffix("\n"), block.replace.removesuffix("\n")
        operations.append(Operation("search_replace", search=search, replace=replacement))
        position = block.end
    if not operations or body[position:].strip():
        return None
    return Edits(tuple(operations), notes=("Conflict markers were read as SEARCH and REPLACE.",))


class _Markers:
    """Finds the markers of one body; the positions of all closers are indexed once."""

    def __init__(self, body: str) -> None:
        self.body = body
        self.first = len(body) - len(body.lstrip())
        self.idents = {found["ident"] for found in _OPENER.finditer(body)}
        self.closers: dict[str, list[int]] = {}
        self.clean: dict[str, list[int]] = {}
        for found in _WORD.finditer(body) if self.idents else ():
            if found[0] in self.idents:
                self.closers.setdefault(found[0], []).append(found.start())
                if self._is_clean(found.start(), found.end()):
                    self.clean.setdefault(found[0], []).append(found.start())

    def read(self) -> list[_Marker] | EditSyntaxError:
        markers: list[_Marker] = []
        position = 0
        while opener := _OPENER.search(self.body, position):
            if not self._counts(opener, markers):
                position = opener.end()
                continue
            closer = self._closer(opener)
            if closer is None:
                if not _IDENT.match(opener["ident"]):
                    # `<<EOF` without its end is not ours: the body is plain.
                    position = opener.end()
                    continue
                line = self.body.count("\n", 0, opener.start()) + 1
                message = f"<<{opener['ident']} is never closed; end it with {opener['ident']} alone on a line."
                return EditSyntaxError(message, line)
            content = _content(self.body, opener.end(), closer)
            markers.append(_Marker(opener["ident"], content, opener.start(), closer + len(opener["ident"])))
            position = markers[-1].end
        return markers

    def _counts(self, opener: re.Match[str], markers: list[_Marker]) -> bool:
        if _IDENT.match(opener["ident"]):
            return True
        return not markers and opener.start() == self.first

    def _closer(self, opener: re.Match[str]) -> int | None:
        ident, start = opener["ident"], opener.end()
        first = _at_or_after(self.closers.get(ident, []), start)
        if not _LINE_END.match(self.body, start):
            return first
        # In the many-line form a closer in the middle of a sentence is content, if a clean one follows.
        clean = _at_or_after(self.clean.get(ident, []), start)
        return first if clean is None else clean

    def _is_clean(self, start: int, end: int) -> bool:
        before = self.body[max(0, start - 200) : start].rsplit("\n", 1)
        after = self.body[end : end + 200].split("\n", 1)
        alone = len(before) == 2 and not before[1].strip() and not after[0].strip()
        return alone or _OPENS_NEXT.match(self.body, end) is not None


def _at_or_after(positions: list[int], start: int) -> int | None:
    index = bisect_left(positions, start)
    return positions[index] if index < len(positions) else None


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


def _operations(body: str, markers: list[_Marker]) -> Edits | EditSyntaxError:
    operations: list[Operation] = []
    search: _Marker | None = None
    for marker in markers:
        found = _IDENT.match(marker.ident)
        kind: OperationKind = _KEYWORDS[found["keyword"]] if found else "replace"
        if search is not None:
            if kind != "replace":
                return _lone(body, search)
            operations.append(Operation("search_replace", search=search.content, replace=marker.content))
            search = None
        elif kind == "search_replace":
            search = marker
        else:
            operations.append(Operation(kind, marker.content))
    if search is not None:
        return _lone(body, search)
    return _with_ignored(body, markers, tuple(operations))


def _lone(body: str, search: _Marker) -> EditSyntaxError:
    line = body.count("\n", 0, search.start) + 1
    return EditSyntaxError(f"<<{search.ident} must be followed at once by <<REPLACE ... REPLACE.", line)


def _with_ignored(body: str, markers: list[_Marker], operations: tuple[Operation, ...]) -> Edits:
    ends = [0, *(marker.end for marker in markers)]
    starts = [*(marker.start for marker in markers), len(body)]
    ignored = sum(len(body[end:start].strip()) for end, start in zip(ends, starts, strict=True))
    notes = ("Text outside the edit markers was ignored.",) if ignored else ()
    return Edits(operations, ignored_chars=ignored, notes=notes)

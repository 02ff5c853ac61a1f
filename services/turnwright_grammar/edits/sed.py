r"""Bodies that are sed commands.

    body    = command { (";" | blank) command } [ ";" ]
    command = [ address ] "s" D search D replacement D { flag }
    address = line | "$" | line "," (line | "$") | "%" | ":%"
    flag    = "g" every occurrence | "i", "I" any letter case | "m", "M", "p" nothing here

D is one of `/|#,@:!~%+;^_`; in search and replacement it stands escaped. Everything else is no sed to
us: a body with `3d`, `/x/d` or `a text` is plain text, because plain text looks like that as well. The
number flag (`s/a/b/2`) is sed beyond doubt, but counts places in a way that a model gets wrong: an error.

A body that begins as a command and does not go on as one is no new text either: it would take the place of all that is
there. Its last operation has no search, which is a conflict. `s,t = f()`, `s: str` and `s_1 = 0` begin programs, so
with these marks every line of the body has to look like a command.

Source: C5, C53, RU283.
"""

from __future__ import annotations

import re

from turnwright_grammar.edits.operations import Edits, EditSyntaxError, Operation

_MARKS = "/|#,@:!~%+;^_"
_COMMAND = re.compile(
    rf"""[\s;]*+
    (?P<address>:?%|\$|(?P<first>\d{{1,9}})(?:,(?P<last>\d{{1,9}}|\$))?)?
    s(?P<mark>[{re.escape(_MARKS)}])""",
    re.VERBOSE,
)
_COMMON = "/|#@!~"
_PROGRAM = re.compile(r"\s*(?:\$\s)?sed\s+(?:-|['\"]|\S{0,20}s[/|#@!~,:])")
_PARTS = {
    mark: re.compile(rf"(?P<text>(?>(?:[^\\{re.escape(mark)}]++|\\.)*)){re.escape(mark)}", re.DOTALL) for mark in _MARKS
}
_FLAGS = re.compile(r"(?P<letters>[gimMIp]*)(?P<number>[1-9]\d?)?[gimMIp]*(?=\s|;|\Z)")


def parse_sed(body: str) -> Edits | EditSyntaxError | None:
    """Return the edits of a body that is sed commands, or begins as such, else None. Never raises; linear."""
    operations: list[Operation] = []
    position, end = 0, len(body.rstrip(" \t\r\n;"))
    while position < end:
        head = _COMMAND.match(body, position)
        if head is None or (operations and body[position] != ";" and not body[position].isspace()):
            return _incomplete(body, operations, body[:position])
        part = _PARTS[head["mark"]]
        search = part.match(body, head.end())
        replacement = part.match(body, search.end()) if search else None
        flags = _FLAGS.match(body, replacement.end()) if replacement else None
        if search is None or replacement is None or flags is None or not search["text"]:
            return _incomplete(body, operations, body[:position])
        if flags["number"]:
            return _numbered(body, head)
        operations.append(_substitution(head, search["text"], replacement["text"], flags["letters"]))
        position = flags.end()
    return Edits(tuple(operations)) if operations else None


def _incomplete(body: str, operations: list[Operation], done: str) -> Edits | None:
    has_line = bool(operations) and "\n" not in done.strip()
    is_sed = has_line or _PROGRAM.match(body) or _begins_command(body)
    return Edits((*operations, Operation("substitute"))) if is_sed else None


def _begins_command(body: str) -> bool:
    head = _COMMAND.match(body)
    if head is None:
        return False
    if head["mark"] in _COMMON or head["first"] or head["address"] == "$":
        return True
    lines = [line for line in body.split("\n") if line.strip()]
    heads = [_COMMAND.match(line) for line in lines]
    return all(
        found and found["mark"] in line[found.end() :] and not line[found.end()].isspace()
        for found, line in zip(heads, lines, strict=True)
    )


def _substitution(head: re.Match[str], search: str, replacement: str, letters: str) -> Operation:
    mark = head["mark"]
    return Operation(
        "substitute",
        search=search.replace("\\" + mark, mark),
        replace=replacement.replace("\\" + mark, mark),
        every="g" in letters,
        ignore_case="i" in letters.lower(),
        lines=_lines(head),
    )


def _lines(head: re.Match[str]) -> tuple[int | None, int | None] | None:
    match head["address"]:
        case None:
            return None
        case "%" | ":%":
            return 1, None
        case "$":
            return None, None
    first = int(head["first"])
    if head["last"] is None:
        return first, first
    return first, None if head["last"] == "$" else int(head["last"])


def _numbered(body: str, head: re.Match[str]) -> EditSyntaxError:
    line = body.count("\n", 0, head.start("mark")) + 1
    return EditSyntaxError("sed's number flag is not read here; name the place with <<SEARCH and <<REPLACE.", line)

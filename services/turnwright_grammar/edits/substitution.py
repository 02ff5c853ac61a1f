r"""Running one sed command on a text.

The search of a command is read as text if it stands in the text so, then with its escapes taken off
(`a\.b`), then as a regex, and last with the leniency of a SEARCH. Models write `s/a[0]/b/` and mean the
characters far more often than the class, and a regex that was meant is not in the text by chance.

In the replacement `\n`, `\t` and escaped punctuation mean what sed means, unless the backslashes of the
search meant themselves; `&` and `\1` refer to the match only where a regex matched.

Without `g` the search must fit one place, or one in each line of its address.

Source: C5, C37, RU283.

Bodies that are sed commands.

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

from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.lines import Lines, with_line_ends_of
from turnwright_core.patterns.matching import replace
from turnwright_core.patterns.regions import find_region
from turnwright_grammar.edits.hunk_matching import AppliedEdit, EditMismatch, ambiguous_mismatch, replace_nearest
from turnwright_grammar.edits.operations import Edits, EditSyntaxError, Operation

# A sed search and replacement as a regex and a replacement of the pattern library.
#
# sed has two dialects: in the basic one `\(` groups and `(` is a character, in the extended one it is the
# other way round, and so for `{ } + ? |`. A command does not say which one it is in: what tells is an
# escaped bracket (basic) or a group that the replacement refers to (extended); else both are tried, basic
# first, because there more of the search means itself.
#
# sed sees a line at a time, so nothing here matches across a line end but an `\n` that is written.
#
# Source: C5.

_TOKEN = re.compile(
    r"\\(?P<escaped>.)|\[(?P<negated>\^?)(?P<members>\]?(?>(?:\[:\w+:\]|[^\]\\\n]|\\.)*))\]|(?P<one>.)", re.DOTALL
)
_SPECIAL = frozenset("(){}+?|")
_BASIC_MARK = re.compile(r"(?<!\\)(?:\\\\)*\\[(){}+?|]")
_GROUP_REFERENCE = re.compile(r"(?<!\\)(?:\\\\)*\\[1-9]")
_WITHIN_LINE = {"s": r"[^\S\n]", "W": r"[^\w\n]", "D": r"[^\d\n]", "<": r"\b", ">": r"\b"}
_PART = re.compile(r"\\(?P<escaped>.)|(?P<one>.)", re.DOTALL)
_MEANS = {"n": "\n", "t": "\t"}


def regex_dialects(search: str, replacement: str) -> tuple[bool, ...]:
    """Return the dialects to try, in order: True for the basic one."""
    if _BASIC_MARK.search(search):
        return (True,)
    if "(" in search and _GROUP_REFERENCE.search(replacement):
        return (False,)
    return (True, False) if _SPECIAL & set(search) else (False,)


def to_regex(search: str, flags: str, *, basic: bool, first_in_line: bool = False) -> str:
    """Return a search as `/regex/flags`.

    With `first_in_line` it matches a line up to and with the first fit in it, as groups 1 and 2, so that
    running it everywhere replaces one fit a line.
    """
    shift = 2 if first_in_line else 0
    inner = "".join(_translated(search, token, basic=basic, shift=shift) for token in _TOKEN.finditer(search))
    return f"/^([^\\n]*?)({inner})/gm{flags}" if first_in_line else f"/(?:{inner})/m{flags}"


def to_replacement(replacement: str, *, first_in_line: bool = False) -> str:
    """Return a replacement with `$` references, for the pattern that `as_pattern` gives."""
    parts = [_referring(part, shift=2 if first_in_line else 0) for part in _PART.finditer(replacement)]
    return ("$01" if first_in_line else "") + "".join(parts)


def _translated(search: str, token: re.Match[str], *, basic: bool, shift: int) -> str:
    if token["escaped"]:
        return _escaped(token["escaped"], basic=basic, shift=shift)
    if token["members"] is not None:
        members = token["members"].replace("\\/", "/").replace("/", "\\/")
        return f"[^\\n{members}]" if token["negated"] else f"[{members}]"
    char = token["one"]
    if (basic and char in _SPECIAL) or char in "[/" or _is_plain_anchor(search, token):
        return "\\" + char
    return char


def _is_plain_anchor(search: str, token: re.Match[str]) -> bool:
    """Whether `^` or `$` stands where it can be no anchor: it is a character there."""
    if token["one"] == "^":
        return search[max(0, token.start() - 1) : token.start()] not in ("", "(", "|")
    return token["one"] == "$" and search[token.end() : token.end() + 1] not in ("", ")", "|", "\\")


def _escaped(char: str, *, basic: bool, shift: int) -> str:
    if char in _SPECIAL:
        return char if basic else "\\" + char
    if char in "123456789":
        return f"(?:\\{int(char) + shift})"
    if char in _WITHIN_LINE:
        return _WITHIN_LINE[char]
    return "\\" + char


def _referring(part: re.Match[str], *, shift: int) -> str:
    escaped, char = part["escaped"], part["one"]
    if char == "&" or escaped == "0":
        return "$02" if shift else "$&"
    if escaped and escaped in "123456789":
        return f"${int(escaped) + shift:02}"
    text = _MEANS.get(escaped, escaped) if escaped else char
    if escaped and escaped.isalnum() and escaped not in _MEANS:
        text = "\\" + escaped
    return "$$" if text == "$" else text


_SYNTAX = re.compile(r"[\\^$.*+?()\[\]{}|]")
_ESCAPE = re.compile(r"\\(n|t|[^\w])", re.DOTALL)
_CASE_CHANGE = re.compile(r"(?<!\\)(?:\\\\)*\\[ULEul]")
_INCOMPLETE = (
    "is not complete. Write s/old/new/ with all three marks and nothing behind them but flags, or name the place with "
    "<<SEARCH and <<REPLACE. To write this text as it is, put it in <<NEW and NEW."
)
_ADVICE = "End it with g to replace every one, or name the place with <<SEARCH and <<REPLACE."


def runs_regex(text: str, operation: Operation) -> bool:
    """Whether an operation is a command that `substitute` tries as a regex."""
    if operation.kind != "substitute":
        return False
    if operation.ignore_case:
        return True
    is_text = operation.search in text or _unescaped(operation.search) in text
    return not is_text and _SYNTAX.search(operation.search) is not None


def run_sed_command(text: str, command: Operation) -> AppliedEdit | EditMismatch:
    """Return `text` with the command run on it, or on the lines of its address. Never raises."""
    if not command.search:
        return EditMismatch(_INCOMPLETE)
    if command.lines is None:
        return _substituted(text, command)
    start, end = _addressed(text, *command.lines)
    if start == end:
        return EditMismatch("names a line that the text does not have.")
    result = _substituted(text[start:end], command)
    if isinstance(result, EditMismatch):
        return result
    return AppliedEdit(text[:start] + result.text + text[end:], 1, 1, result.note)


def _addressed(text: str, first: int | None, last: int | None) -> tuple[int, int]:
    """The offsets of lines `first` to `last` (from 1), None being the last line."""
    lines = Lines(text)
    count = len(lines.bare)
    low = count if first is None else first
    high = count if last is None else min(last, count)
    if not 1 <= low <= high:
        return 0, 0
    return lines.starts[low - 1], min(len(text), lines.starts[high])


def _substituted(text: str, command: Operation) -> AppliedEdit | EditMismatch:
    raw, plain, new = command.search, _unescaped(command.search), _unescaped(command.replace)
    result = _as_regex(text, command) if runs_regex(text, command) else None
    if result is not None:
        return result
    if raw in text:
        return _as_text(text, command, raw, command.replace if "\\" in raw else new)
    return _as_text(text, command, plain, new)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: _MEANS.get(found[1], found[1]), text)


def _as_text(text: str, command: Operation, search: str, replacement: str) -> AppliedEdit | EditMismatch:
    if search not in text or not (replacement or command.every or command.lines):
        # Who takes a whole line out does not want an empty one.
        return replace_nearest(text, search, replacement, None)
    if command.every:
        return AppliedEdit(text.replace(search, replacement), 1, 1)
    if command.lines:
        return AppliedEdit("\n".join(line.replace(search, replacement, 1) for line in text.split("\n")), 1, 1)
    return _once(text, search, replacement)


def _once(text: str, search: str, replacement: str) -> AppliedEdit | EditMismatch:
    """Replace the characters of the only place, or of the only one that is whole lines."""
    found = find_region(text, search)
    ends_line = search.startswith("\n") or search.endswith("\n")
    if not ends_line and found.way in ("lines", "exact"):
        places = found.places
    else:
        first = text.find(search)
        starts = dict.fromkeys((first, text.rfind(search)))
        places = tuple(Lines(text).place(start, start + len(search)) for start in starts)
    if len(places) > 1:
        return ambiguous_mismatch(places, _ADVICE)
    (place,) = places
    after = text[: place.start] + with_line_ends_of(text, replacement) + text[place.end :]
    return AppliedEdit(after, place.first_line, place.last_line)


def _as_regex(text: str, command: Operation) -> AppliedEdit | EditMismatch | None:
    """Run the search as a regex; None when it matches nothing or is none."""
    if _CASE_CHANGE.search(command.replace):
        return EditMismatch(r"changes letter case (\U, \L), which is not read here; write the text out.")
    body = text.removesuffix("\n").removesuffix("\r")
    rest = text[len(body) :]
    crlf = "\r\n" in body
    body = body.replace("\r\n", "\n")
    after: str | EditMismatch | None = None
    for basic in regex_dialects(command.search, command.replace):
        after = _run(body, command, basic=basic) if after is None else after
    if after is None or isinstance(after, EditMismatch):
        return after
    return AppliedEdit((after.replace("\n", "\r\n") if crlf else after) + rest, 1, 1, "was run as a regex.")


def _run(text: str, command: Operation, *, basic: bool) -> str | EditMismatch | None:
    """Return the text after the regex; None when it is none in this dialect, or changes nothing."""
    in_lines = command.lines is not None and not command.every
    flags = "i" if command.ignore_case else ""
    pattern = to_regex(command.search, flags, basic=basic, first_in_line=in_lines)
    new = to_replacement(command.replace, first_in_line=in_lines)
    try:
        after = replace(pattern if in_lines else pattern + "g", new, text)
        if after == text:
            return None
        is_one = command.every or in_lines or after == replace(pattern, new, text)
    except PatternError as error:
        return None if error.reason == "invalid_regex" else EditMismatch(f"cannot be run: {error}")
    return after if is_one else EditMismatch(f"fits several places. {_ADVICE}")


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

"""Display of a proposal: file changes as diffs, a command as it would run, a call with all its arguments.

Whoever decides must see what will happen. Control characters are escaped, and truncated text shows its full length.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from turnwright.types.v1 import proposal_pb2

from turnwright_cli.plain import shown_line, shown_text
from turnwright_core.json_text import json_object

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

LINES_MAX: Final = 200
"""Lines of one text that a terminal shows unless the full text is requested."""
CHARS_MAX: Final = 20_000
"""Characters of one text that a terminal shows."""
TITLE_CHARS_MAX: Final = 200
"""Length of a title in a table or list, in characters."""

_KINDS: Final = {
    proposal_pb2.FILE_CHANGE_KIND_CREATE: "create",
    proposal_pb2.FILE_CHANGE_KIND_MODIFY: "change",
    proposal_pb2.FILE_CHANGE_KIND_DELETE: "delete",
}


def effect_words(proposal: proposal_pb2.Proposal) -> str:
    """What would happen, unescaped: `change src/a.py`, `run make test`."""
    match proposal.WhichOneof("effect"):
        case "command":
            return f"run {proposal.command.command}"
        case "question":
            return f"ask {proposal.question.question}"
        case "files":
            changes = proposal.files.changes
            return ", ".join(f"{_KINDS.get(change.kind, 'change')} {change.path}" for change in changes)
        case "call":
            if "." not in proposal.tool:
                return f"{_called(proposal)} with {proposal.call.data_json}"
            text = " ".join(proposal.body.split())
            return text if text.startswith(_called(proposal)) else f"{_called(proposal)}: {text}"
        case _:
            return _called(proposal)


def effect_title(proposal: proposal_pb2.Proposal, chars_max: int = 0) -> str:
    """What would happen, in one escaped line. If `chars_max` truncates it, it shows its full length."""
    return shown_line(effect_words(proposal), chars_max)


def _called(proposal: proposal_pb2.Proposal) -> str:
    about = f" {proposal.target}" if proposal.target else ""
    return f"call {proposal.tool}{about}"


def how_to_accept(proposal: proposal_pb2.Proposal) -> str:
    return "--answer TEXT" if proposal.WhichOneof("effect") == "question" else "--accept"


def is_cut(proposal: proposal_pb2.Proposal) -> bool:
    """Whether a terminal shows only a part unless the full text is requested."""
    if len(proposal.body.encode()) < proposal.body_size_bytes:
        return True
    written = proposal.command_written
    if len(written.body.encode()) < written.body_size_bytes:
        return True
    return any(_cut(text)[1] for text in _texts(proposal))


def _texts(proposal: proposal_pb2.Proposal) -> Iterator[str]:
    yield proposal.body
    yield proposal.command.command
    yield from (change.patch for change in proposal.files.changes)
    yield from _data(proposal).values()
    yield from proposal.command_written.attributes.values()
    yield proposal.command_written.body


def effect_lines(proposal: proposal_pb2.Proposal, *, styled: bool, whole: bool = True) -> Iterator[RenderableType]:
    """What would happen. Long texts are truncated and show their length, unless `whole`."""
    title = effect_title(proposal, TITLE_CHARS_MAX)
    asks = f"question: {shown_line(proposal.question.question, TITLE_CHARS_MAX)}" if proposal.question.question else ""
    yield _line(asks or f"proposal: {shown_line(proposal.tool)} wants to {title}", style="bold yellow")
    yield from _words(proposal, whole=whole)
    kind = proposal.WhichOneof("effect")
    if kind == "command":
        yield from _block(proposal.command.command, "  $ ", whole=whole)
        yield _line(f"  time limit {proposal.command.timeout.ToTimedelta().total_seconds():g} s", style="dim")
    for number, option in enumerate(proposal.question.options, 1):
        yield _line(f"  {number}. {shown_line(option)}")
    for change in proposal.files.changes:
        patch, more = (change.patch, "") if whole else _cut(change.patch)
        yield diff_view(patch, styled=styled)
        if more:
            yield _line(f"  {more}", style="yellow")
    if kind == "call":
        yield from _named("data", _data(proposal), whole=whole)
    if proposal.HasField("command_written"):
        written = proposal.command_written
        yield from _named("the model wrote", dict(written.attributes), whole=whole)
        yield from _block(written.body, "    | ", whole=whole, size=written.body_size_bytes)


def _line(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(text, style=style)


def _words(proposal: proposal_pb2.Proposal, *, whole: bool) -> Iterator[Text]:
    """What the tool says about it, unless that only repeats what is shown anyway."""
    if proposal.WhichOneof("effect") == "question":
        if proposal.target and proposal.target not in proposal.question.question:
            yield _line(f"  about {shown_line(proposal.tool)} {shown_line(proposal.target)}")
        if proposal.HasField("command_written"):
            yield from _block(proposal.body, "  ", whole=whole, size=proposal.body_size_bytes)
        return
    repeats = proposal.WhichOneof("effect") == "files" and proposal.body.startswith(f"edit {proposal.target} (+")
    if not repeats and proposal.body != f"run '{proposal.command.command}'":
        yield from _block(proposal.body, "  ", whole=whole, size=proposal.body_size_bytes)


def _named(title: str, values: Mapping[str, str], *, whole: bool) -> Iterator[Text]:
    """Names with their values; a value of several lines as a block."""
    if values:
        yield _line(f"  {title}:")
    for name, value in values.items():
        if "\n" in value or len(value) > TITLE_CHARS_MAX:
            yield _line(f"    {shown_line(name)}:")
            yield from _block(value, "      | ", whole=whole)
        else:
            yield _line(f"    {shown_line(name)}: {shown_text(value)}")


def _block(text: str, margin: str, *, whole: bool, size: int = 0) -> Iterator[Text]:
    """A text, line by line. `size` is its full length in bytes if it was truncated on the way."""
    if not text:
        return
    shown, more = (text, "") if whole else _cut(text)
    for line in shown.removesuffix("\n").split("\n"):
        yield _line(margin + shown_text(line))
    if not more and len(text.encode()) < size:
        more = f"... truncated; in full it has {size:,} bytes"
    if more:
        yield _line(margin + more, style="yellow")


def _cut(text: str) -> tuple[str, str]:
    """The part of a text that a terminal shows, and a note about the rest; the note is empty if nothing is missing."""
    lines = text.removesuffix("\n").split("\n")
    shown = "\n".join(lines[:LINES_MAX])[:CHARS_MAX]
    if len(shown) >= len(text.removesuffix("\n")):
        return text, ""
    return shown, f"... truncated; in full it has {len(lines):,} lines, {len(text):,} characters"


def _data(proposal: proposal_pb2.Proposal) -> dict[str, str]:
    """The members of a JSON object with their values as text; the text itself if it is not an object.

    Those of a server's tool only say where it is, and what its server keeps: its text has the arguments.
    """
    data = json_object("{}" if "." in proposal.tool else proposal.call.data_json or "{}")
    if data is None:
        return {"data": proposal.call.data_json}
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for name, value in data.items()
    }


def diff_view(patch: str, *, styled: bool) -> RenderableType:
    """A diff: coloured and wrapped on a terminal, unchanged in a pipe."""
    text = shown_text(patch).rstrip("\n")
    if not styled:
        return _line(text)
    from rich.syntax import Syntax

    return Syntax(text, "diff", theme="ansi_dark", background_color="default", word_wrap=True)

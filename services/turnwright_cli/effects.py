"""A proposal for people: every change of a file as a diff, every command as it would be run, nothing hidden."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import RenderableType
from rich.syntax import Syntax
from rich.text import Text
from turnwright.types.v1 import proposal_pb2

from turnwright_cli.plain import shown_text

_KINDS: Final = {
    proposal_pb2.FILE_CHANGE_KIND_CREATE: "create",
    proposal_pb2.FILE_CHANGE_KIND_MODIFY: "change",
    proposal_pb2.FILE_CHANGE_KIND_DELETE: "delete",
}


def effect_title(proposal: proposal_pb2.Proposal) -> str:
    """What would happen, in a line: `change src/a.py`, `run make test`."""
    if proposal.WhichOneof("effect") == "command":
        return f"run {_one_line(proposal.command.command)}"
    if proposal.WhichOneof("effect") == "question":
        return f"ask {_one_line(proposal.question.question)}"
    if proposal.WhichOneof("effect") is None:
        return f"see {_one_line(proposal.path)}"
    changes = proposal.files.changes
    return ", ".join(f"{_KINDS.get(change.kind, 'change')} {_one_line(change.path)}" for change in changes)


def how_to_accept(proposal: proposal_pb2.Proposal) -> str:
    """The option of `resolve` that accepts it."""
    return "--answer TEXT" if proposal.WhichOneof("effect") == "question" else "--accept"


def effect_lines(proposal: proposal_pb2.Proposal, *, styled: bool) -> Iterator[RenderableType]:
    """What would happen, in full. Control characters are written out, so that what is accepted is what is seen."""
    yield Text(f"proposal: {proposal.tool} wants to {effect_title(proposal)}", style="bold yellow")
    if proposal.WhichOneof("effect") == "command":
        for line in proposal.command.command.split("\n"):
            yield Text(f"  $ {shown_text(line)}")
        yield Text(f"  stopped after {proposal.command.timeout_s:g} s", style="dim")
    for number, option in enumerate(proposal.question.options, 1):
        yield Text(f"  {number}. {shown_text(option)}")
    for change in proposal.files.changes:
        yield diff_view(change.patch, styled=styled)


def diff_view(patch: str, *, styled: bool) -> RenderableType:
    """A diff: coloured and wrapped on a terminal, as it is in a pipe."""
    text = shown_text(patch).rstrip("\n")
    return Syntax(text, "diff", theme="ansi_dark", background_color="default", word_wrap=True) if styled else Text(text)


def _one_line(text: str) -> str:
    return shown_text(text).replace("\n", "\\n").replace("\t", "\\t")

"""Edited content for a proposal, from files or from an editor opened on the proposed content.

Contents are bytes to an editor and text to the contract: line endings and the end of a file are left alone.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct
from turnwright.proposals.v1 import proposal_service_pb2
from turnwright.types.v1 import proposal_pb2

from turnwright_cli.exit_codes import FAILED, FailureError, usage
from turnwright_cli.plain import safe_line
from turnwright_cli.reading import STDIN, decoded
from turnwright_client import Client
from turnwright_client.proposals import ProposedHunk, contents_without, proposed_hunks

EDITORS: Final = ("VISUAL", "EDITOR")
EDITOR_DEFAULT: Final = "vi"


async def edited(proposed: Mapping[str, str]) -> dict[str, str]:
    """The edited contents, by path; unchanged ones are left out.

    Raises FailureError if the editor cannot be started, fails, or leaves something that is not text.
    """
    with tempfile.TemporaryDirectory(prefix="turnwright-") as folder:
        files = {path: _place(Path(folder), number, path) for number, path in enumerate(proposed)}
        for path, file in files.items():
            file.write_bytes(proposed[path].encode(errors="surrogatepass"))
        await _run_editor(list(files.values()))
        left = {path: decoded(file.read_bytes(), path or "The command") for path, file in files.items()}
    # Many editors add a line feed at the end of a file.
    return {path: text for path, text in left.items() if text not in (proposed[path], f"{proposed[path]}\n")}


async def edited_proposal(client: Client, project: str, run: str, path: str) -> dict[str, str]:
    """Open a proposal in an editor. Raises FailureError, and what `Client.get_proposal` raises."""
    answer = await client.get_proposal(project, run, path)
    if not answer.contents:
        raise usage("There is nothing to edit in this proposal: it writes no file and runs no command.")
    contents = await edited({one.path: one.content for one in answer.contents})
    if answer.proposal.HasField("command"):
        return {name: text.removesuffix("\n") for name, text in contents.items()}
    return contents


def _place(folder: Path, number: int, path: str) -> Path:
    """A temporary file with the same name, so that editors recognize its type. Equal names get different folders."""
    (folder / str(number)).mkdir()
    return folder / str(number) / (PurePosixPath(path).name or "command.sh")


async def _run_editor(files: Sequence[Path]) -> None:
    named = next((value for name in EDITORS if (value := os.environ.get(name, "").strip())), EDITOR_DEFAULT)
    try:
        words = shlex.split(named)
        process = await asyncio.create_subprocess_exec(*words, *map(str, files))
    except (OSError, ValueError) as error:
        raise usage(f"The editor {named!r} cannot be started: {error}. Set VISUAL or EDITOR to one.") from None
    if code := await process.wait():
        raise FailureError(FAILED, f"The editor {named!r} ended with {code}; nothing was decided.")


def contents_from(options: Iterable[str]) -> dict[str, str]:
    """The contents from `[PATH=]FILE` options; `-` reads standard input. Raises FailureError."""
    contents: dict[str, str] = {}
    for option in options:
        path, separator, file = option.rpartition("=")
        if not separator or (not Path(file).exists() and Path(option).exists()):
            path, file = "", option
        if path in contents:
            raise usage(f"{path or 'The only file'} has two contents: give one.")
        contents[path] = _read(file)
    return contents


def _read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise usage(f"{file} cannot be read: {error.strerror}.") from None
    return decoded(data, file)


QUESTION: Final = "Apply this hunk? [y]es, [n]o, [a]ll remaining, [d]one (skip the rest)"
ANSWERS: Final = "Answer with y, n, a or d; Ctrl-D leaves the decision for later."
REASON: Final = "Why leave out the others? The model reads this (optional):"

Ask = Callable[..., Awaitable[str | None]]


class PickedHunks(Struct, frozen=True):
    """What was accepted: the contents of files of which hunks are left out, and a comment for the model.

    Without `accept`, nothing was.
    """

    accept: bool
    contents: dict[str, str]
    comment: str


def can_pick(proposal: proposal_pb2.Proposal) -> bool:
    """Whether all that it does is to change files, in several hunks.

    A file that comes or goes does so as a whole, and a diff that was cut does not have all hunks.
    """
    modify = proposal_pb2.FILE_CHANGE_KIND_MODIFY
    changes = proposal.files.changes
    return all(one.kind == modify for one in changes) and sum(one.patch.count("\n@@ ") for one in changes) > 1


async def picked(
    answer: proposal_service_pb2.GetProposalResponse, ask: Ask, show: Callable[[str, str], None]
) -> PickedHunks | str | None:
    """Ask about each hunk; None leaves the decision for later, a text says why it cannot be taken.

    `show` prints a title and a hunk.
    """
    try:
        hunks = proposed_hunks(answer.proposal)
    except ValueError:
        return "The diff is too long to be accepted in parts; edit it instead."
    left = await _left_out(hunks, ask, show)
    if left is None:
        return None
    try:
        contents = contents_without(answer, left)
    except ValueError as error:
        return f"The diff of {safe_line(str(error))} does not fit its content; edit it instead."
    if not left:
        return PickedHunks(accept=True, contents={}, comment="")
    reason = await ask(REASON)
    if reason is None:
        return None
    summary = f"{len(left)} of {len(hunks)} hunks were left out."
    return PickedHunks(len(left) < len(hunks), contents, f"{summary} {reason.strip()}".strip())


async def _left_out(hunks: list[ProposedHunk], ask: Ask, show: Callable[[str, str], None]) -> list[ProposedHunk] | None:
    left: list[ProposedHunk] = []
    for index, hunk in enumerate(hunks):
        show(f"{safe_line(hunk.path)}, hunk {index + 1} of {len(hunks)}", hunk.text)
        while True:
            word = await ask(QUESTION, one_key=True)
            if word is None:
                return None
            match word.strip().lower():
                case "y" | "yes":
                    break
                case "n" | "no":
                    left.append(hunk)
                    break
                case "a" | "all":
                    return left
                case "d" | "done":
                    return [*left, *hunks[index:]]
                case _:
                    show(ANSWERS, "")
    return left

"""Edited content for a proposal, from files or from an editor opened on the proposed content.

Contents are bytes to an editor and text to the contract: line endings and the end of a file are left alone. Source: row
RU232; architecture 15.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from turnwright_cli.exit_codes import FAILED, FailureError, usage
from turnwright_client import Client

EDITORS: Final = ("VISUAL", "EDITOR")
EDITOR_DEFAULT: Final = "vi"
STDIN: Final = "-"


async def edited(proposed: Mapping[str, str]) -> dict[str, str]:
    """The edited contents, by path; unchanged ones are left out.

    Raises FailureError if the editor cannot be started, fails, or leaves something that is not text.
    """
    with tempfile.TemporaryDirectory(prefix="turnwright-") as folder:
        files = {path: _place(Path(folder), number, path) for number, path in enumerate(proposed)}
        for path, file in files.items():
            file.write_bytes(proposed[path].encode(errors="surrogatepass"))
        await _run_editor(list(files.values()))
        left = {path: _text(file.read_bytes(), path or "the command") for path, file in files.items()}
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
    return _text(data, file)


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise usage(f"{what} is not UTF-8 text (byte {error.start}).") from None

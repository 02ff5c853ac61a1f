"""The instructions that a project keeps for agents, put together within a limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct, to_builtins

from turnwright_core.json_text import JsonObject
from turnwright_core.text import cut_bytes

FILES: Final = ("AGENTS.md", "CLAUDE.md")
"""Files at the root of a project whose text is instructions, in this order."""

BYTES_MAX: Final = 32 * 1024
"""Most bytes of UTF-8 that instructions of a project take, whatever the context window."""

WINDOW_SHARE: Final = 8
"""Instructions of a project take at most one part in this many of the context window."""

BYTES_MIN: Final = 512
"""They may take as much in the smallest of windows."""


class InstructionFile(Struct, frozen=True):
    """A file that was found, by its normalized path; the text is empty where `problem` says why it was not read."""

    path: str
    text: str = ""
    hash: str = ""
    problem: str = ""


class ReadFile(Struct, frozen=True, omit_defaults=True):
    """What is noted of a file: its size in bytes, how many of them are shown, or why it was not read."""

    path: str
    bytes: int = 0
    shown: int = 0
    hash: str = ""
    problem: str = ""


class ProjectInstructions(Struct, frozen=True):
    """The text, and what is noted of each file."""

    text: str
    files: tuple[ReadFile, ...]

    @property
    def attributes(self) -> JsonObject:
        return {"files": [to_builtins(file) for file in self.files]}


def bytes_max(context_length: int, divisor: int) -> int:
    """The limit for a context window in tokens, of so many characters each."""
    return max(BYTES_MIN, min(BYTES_MAX, context_length * divisor // WINDOW_SHARE))


def project_instructions(files: Sequence[InstructionFile], most: int) -> ProjectInstructions | None:
    """The text of these files in at most so many bytes; None if there are none.

    A text that is there already, for instance by a link from one name to the other, is not repeated.
    """
    noted: list[ReadFile] = []
    parts: list[str] = []
    seen: set[str] = set()
    room = most
    for file in files:
        if file.problem:
            noted.append(ReadFile(file.path, problem=file.problem))
            continue
        if file.hash in seen or not file.text.strip():
            continue
        seen.add(file.hash)
        size = len(file.text.encode())
        text = _beginning(file.text, room) if size > room else file.text
        shown = len(text.encode())
        room -= shown
        noted.append(ReadFile(file.path, size, shown, file.hash))
        parts.append(_part(file.path, text, size, shown))
    return ProjectInstructions("\n\n".join(parts), tuple(noted)) if noted else None


def _beginning(text: str, room: int) -> str:
    """As many whole lines as fit; a part of the last one, too, if that is longer than all before it."""
    kept = cut_bytes(text, room)
    whole = kept[: kept.rfind("\n") + 1]
    return whole if len(whole) * 2 >= len(kept) else kept


def _part(path: str, text: str, size: int, shown: int) -> str:
    if shown == size:
        return f"{path}:\n\n{text.strip()}"
    return f"{path}:\n\n{text.strip()}\n\n[the first {shown} of {size} bytes; `get` of {path} shows all of it]"

"""What a command wants to do to the world, as data: shown in a proposal, stored in its record, carried out later.

An effect lives in the attributes of the command's record under `effect`, so that any executor can carry it out.
File effects carry the hash of what they were made from and of what they make: whoever finds the file at the target
knows that the work is done, and whoever finds something else knows that it is a conflict (architecture 6, 11).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FileEdit:
    """One file that changes. `base_hash` is None where no file was, `content` is None where none shall be.

    Hashes are SHA-256 over the file's bytes, lower-case hexadecimal; `path` is relative to the project's root.
    """

    path: str
    base_hash: str | None
    content: str | None
    patch: str


@dataclass(frozen=True, slots=True)
class FileEffect:
    """Files that change together, in order."""

    edits: tuple[FileEdit, ...]


@dataclass(frozen=True, slots=True)
class CommandEffect:
    """A shell command that runs in the project's root; `timeout_s` in seconds."""

    command: str
    timeout_s: float


Effect = FileEffect | CommandEffect


def effect_to_json(effect: Effect) -> dict[str, Any]:
    """The effect as it is kept in the attributes of a record."""
    if isinstance(effect, CommandEffect):
        return {"kind": "command", "command": effect.command, "timeout_s": effect.timeout_s}
    edits = [
        {"path": edit.path, "base_hash": edit.base_hash, "content": edit.content, "patch": edit.patch}
        for edit in effect.edits
    ]
    return {"kind": "files", "edits": edits}


def effect_from_json(value: dict[str, Any]) -> Effect:
    """The effect from the attributes of a record. Raises KeyError for something that is none."""
    if value["kind"] == "command":
        return CommandEffect(value["command"], value["timeout_s"])
    return FileEffect(
        tuple(FileEdit(edit["path"], edit["base_hash"], edit["content"], edit["patch"]) for edit in value["edits"])
    )

"""What a command wants to do to the world, as data: shown in a proposal, stored in its record, carried out later.

An effect lives in the command's record, so that any executor can carry it out.
File effects carry the hash of what they were made from and of what they make: whoever finds the file at the target
knows that the work is done, and whoever finds something else knows that it is a conflict (architecture 6, 11).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import Struct, field


class EffectClass(Enum):
    """What happens when a command is carried out again because nobody knows how far it came."""

    PURE = "pure"
    """It only writes entries, and these are written with its result: carry it out again."""
    IDEMPOTENT = "idempotent"
    """It can tell that it was carried out, by hashes or by its key: carry it out again."""
    OUTSIDE = "outside"
    """It may happen twice: it is never carried out again without a decision."""


class FileEdit(Struct, frozen=True):
    """One file that changes. `base_hash` is None where no file was, `content` is None where none shall be.

    Hashes are SHA-256 over the file's bytes, lower-case hexadecimal; `path` is relative to the project's root. `patch`
    leads from what was there to the content; where the content was amended on acceptance, from what was proposed to it.
    `like` is the file whose mode a new one gets; empty: none.
    """

    path: str
    base_hash: str | None
    content: str | None
    patch: str
    amended: bool = False
    like: str = ""


class FileEffect(Struct, frozen=True):
    """Files that change together, in order."""

    edits: tuple[FileEdit, ...]


class CommandEffect(Struct, frozen=True):
    """A shell command in the project's root; `timeout_s` in seconds. `read_only`: it cannot change anything."""

    command: str
    timeout_s: float
    read_only: bool = False
    producer: str = ""
    """The client that runs it; empty: the executor does."""


class QuestionEffect(Struct, frozen=True):
    """A question to a person; `options` are answers that are suggested. Nothing happens to the world.

    `answer` is empty until somebody has answered.
    """

    question: str
    options: tuple[str, ...] = ()
    answer: str = ""


class CallEffect(Struct, frozen=True):
    """Something outside of the project that a tool does itself; `data` is all that it needs for that, as JSON."""

    data: Mapping[str, Any] = field(default_factory=dict)


Effect = FileEffect | CommandEffect | QuestionEffect | CallEffect

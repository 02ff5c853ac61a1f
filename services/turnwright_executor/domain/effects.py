"""Effects as data: what a command wants to do outside the store, shown in a proposal, recorded, carried out later.

An effect is stored in the command's record, so that any executor can carry it out. File effects have hashes of the
content before and after: if the file already has the target hash, the work is done; if it has neither, there is a
conflict (architecture 6, 11).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field


class EffectClass(StrEnum):
    """Whether a command can be run again after an interruption that left its result unknown."""

    PURE = "pure"
    """It only writes entries, together with its result: run it again."""
    IDEMPOTENT = "idempotent"
    """It can detect that it was carried out, by hashes or by its key: run it again."""
    OUTSIDE = "outside"
    """It might happen twice: never run it again without a decision."""


class FileEdit(Struct, frozen=True):
    """One file that changes. `base_hash` is None if the file did not exist, `content` is None if it is deleted.

    Hashes are SHA-256 over the file's bytes, lower-case hexadecimal; `path` is relative to the project's root. `patch`
    is the diff from the old to the new content, or from the proposed to the accepted content if it was edited on
    acceptance. `like` is the file whose permissions a new one gets; empty: none. `encoding` is that of the file before
    and after (domain.encodings); empty: UTF-8.
    """

    path: str
    base_hash: str | None
    content: str | None
    patch: str
    amended: bool = False
    like: str = ""
    encoding: str = ""


class WrittenFile(Struct, frozen=True):
    """One file as a command changed it: hashes as in FileEdit, `hash` None if it was deleted.

    `patch` is the diff from the file before to the file after; None if it was not kept.
    """

    path: str
    base_hash: str | None
    hash: str | None
    patch: str | None
    encoding: str = ""
    """The encoding of the file, as in FileEdit."""


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
    """A question to a person; `options` are suggested answers. It has no effect outside the store.

    `answer` is empty until there is one.
    """

    question: str
    options: tuple[str, ...] = ()
    answer: str = ""


class CallEffect(Struct, frozen=True):
    """Something that a tool does itself outside the project; `data` has everything it needs, as JSON."""

    data: Mapping[str, Any] = field(default_factory=dict)


class ClientToolEffect(Struct, frozen=True):
    """A tool that a client executes; `result` is what the model reads, once there is one."""

    result: str = ""
    failed: bool = False


Effect = FileEffect | CommandEffect | QuestionEffect | CallEffect | ClientToolEffect

"""The sandbox of commands: what they see of the host, what they may write, and what keeps them to it.

The lists are the same whatever keeps a command to them: `bubblewrap`, or `landlock`. With limits alone there is no
sandbox, and where nothing works no command runs (`finding`).
Source: architecture 6; decision C30; research/tooling 5; ADR 69.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from turnwright_kit.sandbox.readable import is_replaceable
from turnwright_kit.settings import setting

SECRETS: Final = (
    *("~/.ssh", "~/.aws", "~/.kube", "~/.config/gcloud", "~/.netrc"),
    *("~/.cache/huggingface/token", "~/.cache/huggingface/stored_tokens"),
)
"""Credentials that no command reads, wherever they are; tools keep the last two among their caches."""


class Backend(StrEnum):
    """What confines commands."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    LIMITS = "limits"
    """Resource limits alone."""
    NONE = "none"
    """Nothing works here: no command runs."""


class Shared(Struct, frozen=True):
    """A directory beside the project that a command may write."""

    path: str
    """Where it is for the command."""
    source: str
    """Where it is on the host."""


class Confined(Struct, frozen=True):
    """How a command is started."""

    argv: tuple[str, ...]
    options: tuple[str, ...] = ()
    """Words for the supervisor."""
    environment: Mapping[str, str] = {}
    """What it has in its environment beside the usual."""
    without: tuple[str, ...] = ()
    """What it has not."""
    held: tuple[int, ...] = ()
    """Descriptors that it begins with; whoever starts it closes them."""


class Sandbox(Struct, frozen=True):
    """How commands are confined."""

    backend: Backend = Backend.LIMITS
    program: str = ""
    """That of bubblewrap."""
    refusal: str = ""
    """Why no command runs here, and what to do; empty: they do."""
    hidden: tuple[str, ...] = ()
    """Directories and files that commands cannot read, wherever they are."""
    readable: tuple[str, ...] = ()
    """Existing paths besides the project that a command may read; it sees nothing else of the host."""
    writable: tuple[str, ...] = ()
    """Directories besides the project that a command may write."""
    inside: tuple[str, ...] = ()
    """Paths that a command may read although they lie in hidden ones, such as the repository of a run's place."""

    @property
    def own_processes(self) -> frozenset[str]:
        """Names of the processes that hold the sandbox: the command is killed before them."""
        return frozenset({Path(self.program).name[:15]} if self.program else ())

    @property
    def keeps_read_only(self) -> bool:
        return self.backend in (Backend.BUBBLEWRAP, Backend.LANDLOCK)

    def hidden_paths(self) -> tuple[str, ...]:
        """Those of `hidden` that exist now."""
        # `Path.exists` raises if a folder above is inaccessible; what we cannot see does not exist for commands either.
        return tuple(os.path.realpath(path) for path in self.hidden if os.path.exists(path))

    def shown_inside(self) -> Iterator[str]:
        """Those of `inside`; not what a command has replaced with a link."""
        yield from (path for path in self.inside if os.path.realpath(path) == path)

    def seen(self) -> Iterator[str]:
        """Those of `readable`, beside any project."""
        for path in self.readable:
            # Not what a command has replaced with a link, or could have.
            if os.path.realpath(path) == path or not is_replaceable(Path(path), self.writable):
                yield path


def is_within(path: str, folder: str) -> bool:
    """Whether a normalized path is a folder or below it: `PurePath` would take milliseconds of each command."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def expanded(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(os.path.expanduser(path) for path in paths)


SandboxChoice = Literal["auto", "bubblewrap", "landlock", "limits"]

SH_SANDBOX: Final[Any] = setting(
    "How commands are confined: `bubblewrap` or `landlock` (the service refuses to start if it does not work), "
    "`limits` (resource limits only: commands can read and change what the service can), or `auto` (bubblewrap, "
    "else Landlock, else no command runs).",
    "auto",
)
SH_WRITABLE: Final[Any] = setting(
    "Directories outside the project that sandboxed commands may write to, separated by colons.",
    "~/.cache:~/.npm:~/.cargo/registry:~/.cargo/git:~/go/pkg:~/.m2/repository:~/.gradle/caches:~/.gradle/wrapper",
)
SH_READABLE: Final[Any] = setting(
    "Extra files and directories that sandboxed commands may read, such as `~/.gitconfig`, separated "
    "by colons. The project, system files, toolchains and caches are readable anyway.",
    "",
)

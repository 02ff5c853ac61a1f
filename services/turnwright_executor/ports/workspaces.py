"""The port to this host: project directories, and the files in them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol, Self

from msgspec import Struct

from turnwright_core.constraints import Constraints
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.tools.ports import ScannedFile, Shell, Workspace


class FoundWorkspace(Struct, frozen=True):
    """A directory on this host: its real absolute path, and the id in its marker."""

    root: str
    id: str
    copied_from: str = ""
    """If it was just found to be a copy: the original directory, whose id it had. It now has its own."""


Locate = Callable[[str], Awaitable[FoundWorkspace | None]]
"""Finds a directory by its absolute path and creates its marker if missing; None if it is not a directory."""

FindProject = Callable[[str], Awaitable[Any]]
"""Finds the registered project of a directory, as a message, without writing anything; None if there is none."""

Admits = Callable[[str], Awaitable[bool]]
"""Whether anybody may register a directory."""

Clone = Callable[[str, str], Awaitable[str]]
"""The directory of a clone, which is made if there is none, by the URL and the name of a branch or tag."""

WhyUnfit = Callable[[str], Awaitable[str]]
"""What a directory is that hardly anybody means as a project; empty if it may be one."""


class Scan(Struct, frozen=True):
    """The result of a scan: new and changed files, and deleted paths."""

    changed: tuple[ScannedFile, ...]
    removed: tuple[str, ...]


class SeenFile(Struct, frozen=True):
    """A file as of the last scan."""

    hash: str
    """Of its bytes, or of its status if it is too long to be read."""
    chars: int | None
    """Characters of its text; None: not a text file."""


class FileScanner(Protocol):
    """Scans the files of one project; each scan reports the changes since the previous one."""

    @property
    def files(self) -> Mapping[str, SeenFile]: ...

    def copied(self) -> Self:
        """A scanner of its own that has seen what this one has. Not while this one scans."""

    async def scan(self, doubtful: Collection[str] = ()) -> Scan:
        """Scan again. Raises OSError if the root cannot be read.

        The state of `doubtful` paths is reported whether it changed or not: of existing files and of missing ones.
        """


class HostedPlace(Struct, frozen=True):
    """A project on a sandbox host: its files and a shell in it."""

    workspace: Workspace
    shell: Shell
    scanner: Callable[[], FileScanner]
    """Makes one that has seen nothing yet."""


class SandboxHosts(Protocol):
    """The hosts other than this one that projects are on, by roots such as `box:/shop`."""

    async def locate(self, root: str, *, make: bool = True) -> FoundWorkspace | None:
        """As Locate; without `make` nothing is written. Raises WORKSPACE_UNAVAILABLE for a host that is away."""

    async def place(
        self, address: RunAddress, epoch: int, root: str, constraints: Constraints, ends_s: Callable[[], float]
    ) -> HostedPlace:
        """A project, for a run under a lease. Raises WORKSPACE_UNAVAILABLE.

        `epoch` 0: for a client's commands. `ends_s` says until when commands may run, in seconds of CLOCK_BOOTTIME.
        """

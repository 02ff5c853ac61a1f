"""What the executor needs from this host: directories with projects, and the files in them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol

from msgspec import Struct

from turnwright_executor.tools.ports import ScannedFile


class FoundWorkspace(Struct, frozen=True):
    """A directory on this host: its real absolute path, and the id in its marker."""

    root: str
    id: str
    copied_from: str = ""
    """The directory that this one was found to be a copy of, just now: it had the other's id and has its own now."""


Locate = Callable[[str], Awaitable[FoundWorkspace | None]]
"""Finds a directory by its absolute path, making its marker where there is none; None when it is no directory."""

Admits = Callable[[str], Awaitable[bool]]
"""Whether a directory may be made known by a caller that does not hold the deployment's secret."""


class Scan(Struct, frozen=True):
    """What a scan found: files that are new or changed since the scan before, and paths that are gone."""

    changed: tuple[ScannedFile, ...]
    removed: tuple[str, ...]


class SeenFile(Struct, frozen=True):
    """A file as a scan found it."""

    hash: str
    """Of its bytes, or of what else tells a change."""
    chars: int | None
    """Characters of its text; None: it has none."""


class FileScanner(Protocol):
    """Finds the files of one project; each scan tells what changed since the one before."""

    @property
    def files(self) -> Mapping[str, SeenFile]:
        """The files as the scan before found them, by path; before the first one those that another scanner found."""
        ...

    async def scan(self, doubtful: Collection[str] = ()) -> Scan:
        """Look again. Raises OSError when the root cannot be read.

        Of `doubtful` paths it is told what they are now, changed or not: of files that are there, and of those that
        are gone.
        """
        ...

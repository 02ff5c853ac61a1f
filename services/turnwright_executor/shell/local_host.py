"""The projects on this host: their files, and shells in them, as far as the settings let commands go."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from turnwright_core.constraints import Constraints
from turnwright_executor.files.folder_watch import FolderWatch
from turnwright_executor.files.scan import DiskScanner
from turnwright_executor.files.workspace import DiskWorkspace
from turnwright_executor.shell.shell import LocalShell, ShellLimits, never
from turnwright_kit.sandbox.environment import allowed_environment
from turnwright_kit.sandbox.sandbox import Sandbox

CACHES_FOLDER: Final = "caches"
"""In the home: what commands of others than its owner keep, for each directory of a project."""


class PlaceSettings(Protocol):
    """The settings of whatever has projects on its host."""

    home: Path
    file_bytes_max: int
    files_max: int
    sh_output_bytes_max: int
    sh_processes_max: int
    sh_memory_mb_max: int
    sh_grace_s: float


class FileLimits(Struct, frozen=True):
    """What a caller takes at most; the settings hold, too. 0: what they say."""

    file_bytes: int = 0
    files: int = 0


NONE: Final = FileLimits()


class LocalHost:
    """Makes the adapters for one directory each. A root is a real path."""

    def __init__(self, settings: PlaceSettings, sandbox: Sandbox) -> None:
        self.home = os.path.realpath(settings.home)
        self.environment = allowed_environment(os.environ)
        self.sandbox = sandbox
        self._settings = settings

    def workspace(self, root: str, constraints: Constraints, limits: FileLimits = NONE) -> DiskWorkspace:
        return DiskWorkspace(root, _lower(self._settings.file_bytes_max, limits.file_bytes), constraints, self.home)

    def scanner(
        self, root: str, constraints: Constraints, limits: FileLimits = NONE, *, watched: bool = False
    ) -> DiskScanner:
        """`watched`: the kernel tells it in which folders something happened."""
        return DiskScanner(
            root,
            file_bytes_max=_lower(self._settings.file_bytes_max, limits.file_bytes),
            files_max=_lower(self._settings.files_max, limits.files),
            constraints=constraints,
            home=self.home,
            watch=FolderWatch(root) if watched else None,
        )

    def shell(
        self,
        root: str,
        constraints: Constraints,
        caches: str = "",
        readable: Sequence[str] = (),
        ends_s: Callable[[], float] = never,
        output_bytes: int = 0,
    ) -> LocalShell:
        """`caches`: as LocalShell has them; empty: those of this directory. Commands read `readable`, too.

        `output_bytes`: what a caller takes at most, as in FileLimits.
        """
        settings, sandbox = self._settings, self.sandbox
        limits = ShellLimits(
            output_bytes=_lower(settings.sh_output_bytes_max, output_bytes),
            processes=settings.sh_processes_max,
            memory_mb=settings.sh_memory_mb_max,
            term_grace_s=settings.sh_grace_s,
        )
        caches = caches or f"{self.home}/{CACHES_FOLDER}/{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}"
        if readable:
            sandbox = replace(sandbox, inside=(*sandbox.inside, *readable))
        files = self.scanner(root, constraints)
        return LocalShell(root, limits, self.environment, sandbox=sandbox, ends_s=ends_s, caches=caches, files=files)


def _lower(own: int, wanted: int) -> int:
    return min(own, wanted) if wanted else own

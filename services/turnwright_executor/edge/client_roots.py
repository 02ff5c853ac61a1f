"""Directories that callers with derived tokens may register as projects. Source: architecture 10."""

from __future__ import annotations

import os
from pathlib import Path

from turnwright_executor.edge.file_threads import on_files
from turnwright_executor.edge.projects import Projects


class ClientRoots:
    """The allowed directories; never our own home, nor a directory that contains it.

    The directory of an existing project is allowed, too.
    """

    def __init__(self, directories: str, home: Path, projects: Projects) -> None:
        """`directories` are absolute paths separated by colons; `~` is the executor's user."""
        self._projects = projects
        self._directories = [os.path.expanduser(path) for path in directories.split(os.pathsep) if path]  # noqa: PTH111
        self._home = home

    async def admits(self, root: str) -> bool:
        """Whether a directory, with links resolved, is allowed, is below an allowed one, or is a project's."""
        try:
            if await on_files(lambda _: self._admits(Path(root))):
                return True
        except (OSError, ValueError):
            # A path that cannot be resolved, such as a link that only its owner can read, is not allowed.
            return False
        return await self._projects.has_root(root)

    def _admits(self, root: Path) -> bool:
        if not root.is_absolute():
            return False
        real, home = _real(root), _real(self._home)
        if real.is_relative_to(home) or home.is_relative_to(real):
            return False
        return any(real.is_relative_to(_real(directory)) for directory in self._directories)


def _real(path: str | Path) -> Path:
    # `Path.resolve` raises RuntimeError for a cycle of links before Python 3.13.
    return Path(os.path.realpath(path))

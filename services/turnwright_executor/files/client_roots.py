"""Directories that can be projects, and those that anybody may register. Source: architecture 10."""

# ruff: noqa: S108 - nothing is written there

from __future__ import annotations

import contextlib
import os
import pwd
from pathlib import Path
from typing import Final

from turnwright_executor.files.file_threads import on_files

_SYSTEM_TREES: Final = ("/proc", "/sys", "/dev", "/etc", "/boot", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
"""Folders of the system; nothing below them is a project either, but in `/dev/shm`, which is for everybody."""
_SYSTEM_FOLDERS: Final = frozenset(
    {
        *("/", "/usr", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/share", "/usr/include", "/usr/local"),
        *("/usr/local/bin", "/usr/local/lib", "/usr/local/share", "/var", "/var/lib", "/var/log", "/var/tmp", "/opt"),
        *("/home", "/Users", "/root", "/run", "/srv", "/mnt", "/media", "/tmp", "/dev/shm", "/System", "/Library"),
    }
)
"""Folders in which projects may lie, but which are none."""


def not_a_project(root: str) -> str:
    """What a directory is that hardly anybody means as a project; empty if it may be one."""
    path = Path(root)
    in_tree = any(path.is_relative_to(tree) for tree in _SYSTEM_TREES) and not path.is_relative_to("/dev/shm")
    if in_tree or root in _SYSTEM_FOLDERS:
        return "a folder of the system"
    homes = {os.path.expanduser("~")}
    with contextlib.suppress(OSError, KeyError):
        homes.add(pwd.getpwuid(path.stat().st_uid).pw_dir)
    is_home = path.parent in (Path("/home"), Path("/Users")) or root in map(os.path.realpath, homes)
    return "somebody's home" if is_home else ""


async def unfit(root: str) -> str:
    """As `not_a_project`, with links resolved."""
    try:
        return await on_files(lambda _: not_a_project(os.path.realpath(root)))
    except (OSError, ValueError):
        # It is refused as a directory that nobody can see.
        return ""


class ClientRoots:
    """The directories below which anybody may register projects; never our own home, nor one that contains it."""

    def __init__(self, directories: str, home: Path) -> None:
        """`directories` are absolute paths separated by colons; `~` is the executor's user."""
        self._directories = [os.path.expanduser(path) for path in directories.split(os.pathsep) if path]
        self._home = home

    async def admits(self, root: str) -> bool:
        """Whether a directory, with links resolved, is below one of them; who had one of these would have all below."""
        try:
            return await on_files(lambda _: self._admits(Path(root)))
        except (OSError, ValueError):
            # A path that cannot be resolved, such as a link that only its owner can read, is not allowed.
            return False

    def _admits(self, root: Path) -> bool:
        if not root.is_absolute():
            return False
        real, home = _real(root), _real(self._home)
        if real.is_relative_to(home) or home.is_relative_to(real):
            return False
        return any(_real(directory) in real.parents for directory in self._directories)


def _real(path: str | Path) -> Path:
    # `Path.resolve` raises RuntimeError for a cycle of links before Python 3.13.
    return Path(os.path.realpath(path))

"""The projects in the store, and their directories: which can be projects, and which anybody may register.

Source: architecture 10.
"""
# ruff: noqa: S108 - nothing is written there

from __future__ import annotations

import contextlib
import os
import pwd
from pathlib import Path
from typing import Final

from turnwright.projects.v1 import project_service_pb2_grpc
from turnwright.projects.v1.project_service_pb2 import GetProjectRequest
from turnwright.types.v1 import project_pb2

from turnwright_core.errors import MissingError
from turnwright_core.text import host_and_path
from turnwright_executor.files.file_threads import on_files
from turnwright_executor.files.workspace_marker import find_workspace, known_workspace
from turnwright_executor.ports.workspaces import FoundWorkspace, SandboxHosts
from turnwright_kit.logs import get_logger
from turnwright_kit.peer import Peer

_log = get_logger("projects")


class Projects:
    """Reads the projects. Every method raises TurnwrightError."""

    def __init__(self, peer: Peer, hosts: SandboxHosts | None = None) -> None:
        """`hosts` have the projects that are not on this one. None: nobody asks for those."""
        self._peer, self._hosts = peer, hosts
        self._stub = project_service_pb2_grpc.ProjectServiceStub(peer.channel)

    async def at(self, root: str) -> project_pb2.Project | None:
        """The registered project of a directory; None if there is none. Nothing is written."""
        if self._hosts and host_and_path(root)[0]:
            found = await self._hosts.locate(root, make=False)
            return await self._find(GetProjectRequest(workspace_id=found.id)) if found else None
        try:
            workspace = await on_files(lambda _: known_workspace(root))
        except (OSError, ValueError):
            return None
        return await self._find(GetProjectRequest(workspace_id=workspace))

    async def locate(self, root: str) -> FoundWorkspace | None:
        """See Locate; also on a sandbox host."""
        return await (self._hosts.locate(root) if self._hosts and host_and_path(root)[0] else locate(root))

    async def get(self, name: str) -> project_pb2.Project:
        """A project by its name. Raises PROJECT_NOT_FOUND."""
        return (await self._peer.call(self._stub.GetProject, GetProjectRequest(project=name))).project

    async def root(self, name: str) -> str:
        """The directory of a project. Raises PROJECT_NOT_FOUND."""
        return (await self.get(name)).root

    async def _find(self, request: GetProjectRequest) -> project_pb2.Project | None:
        try:
            return (await self._peer.call(self._stub.GetProject, request)).project
        except MissingError:
            return None


async def locate(root: str) -> FoundWorkspace | None:
    """The directory at an absolute path, with the id from its marker; None if there is none."""
    return await on_files(lambda _: _locate(Path(root)))


def _locate(path: Path) -> FoundWorkspace | None:
    # `Path.is_dir` raises for some inaccessible paths: too long a name, or a folder without permission.
    if not path.is_absolute() or not os.path.isdir(path):
        return None
    found = find_workspace(path)
    if found.copied_from:
        _log.warning("workspace_copied", root=found.root, copied_from=found.copied_from)
    return found


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

"""The projects in the store, and their directories."""

from __future__ import annotations

import os
from pathlib import Path

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

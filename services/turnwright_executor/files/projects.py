"""The projects in the store, and their directories."""

from __future__ import annotations

from turnwright.projects.v1 import project_service_pb2_grpc
from turnwright.projects.v1.project_service_pb2 import GetProjectRequest
from turnwright.types.v1 import project_pb2

from turnwright_core.errors import MissingError
from turnwright_executor.files.file_threads import on_files
from turnwright_executor.files.workspace_marker import known_workspace
from turnwright_kit.peer import Peer


class Projects:
    """Reads the projects. Every method raises TurnwrightError."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._stub = project_service_pb2_grpc.ProjectServiceStub(peer.channel)

    async def at(self, root: str) -> project_pb2.Project | None:
        """The registered project of a directory; None if there is none. Nothing is written."""
        try:
            workspace = await on_files(lambda _: known_workspace(root))
        except (OSError, ValueError):
            return None
        return await self._find(GetProjectRequest(workspace_id=workspace))

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

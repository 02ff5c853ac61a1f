"""The projects in the store, and their directories."""

from __future__ import annotations

from turnwright.store.v1 import registry_pb2, store_service_pb2_grpc
from turnwright.types.v1 import project_pb2

from turnwright_core.errors import Reason, fault
from turnwright_core.kit.peer import Peer
from turnwright_executor.edge.file_threads import on_files
from turnwright_executor.edge.workspace_marker import known_workspace


class Projects:
    """Reads the projects. Every method raises TurnwrightError."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._stub = store_service_pb2_grpc.StoreServiceStub(peer.channel)

    async def named(self, name: str) -> project_pb2.Project | None:
        return await self._find(registry_pb2.ListProjectsRequest(name=name))

    async def at(self, root: str) -> project_pb2.Project | None:
        """The registered project of a directory; None if there is none. Nothing is written."""
        try:
            workspace = await on_files(lambda _: known_workspace(root))
        except (OSError, ValueError):
            return None
        return await self._find(registry_pb2.ListProjectsRequest(workspace_id=workspace))

    async def root(self, name: str) -> str:
        """The directory of a project. Raises PROJECT_NOT_FOUND."""
        found = await self.named(name)
        if found is None:
            raise fault(Reason.PROJECT_NOT_FOUND, f"There is no project {name!r}.", project=name)
        return found.root

    async def _find(self, request: registry_pb2.ListProjectsRequest) -> project_pb2.Project | None:
        return next(iter((await self._peer.call(self._stub.ListProjects, request)).projects), None)

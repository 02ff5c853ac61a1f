"""InitProject of a directory that was registered before: nothing is written."""

from __future__ import annotations

from typing import Any

from turnwright.executor.v1 import executor_service_pb2 as pb

from turnwright_core.errors import Reason, fault
from turnwright_executor.ports.workspaces import FindProject
from turnwright_executor.rpc.forwarding import Forwarding


class KnownProjectRpcs(Forwarding):
    """InitProject with `existing`."""

    _find_project: FindProject

    async def InitProject(self, request: pb.InitProjectRequest, context: Any) -> pb.InitProjectResponse:
        """The project of a directory. Raises PROJECT_NOT_FOUND."""
        project = await self._find_project(request.root)
        if project is None:
            message = f"{request.root!r} is not registered as a project: no task was given in it yet."
            raise fault(Reason.PROJECT_NOT_FOUND, message, project="", root=request.root)
        return pb.InitProjectResponse(project=project)

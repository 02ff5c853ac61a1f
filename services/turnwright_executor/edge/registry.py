"""The store over gRPC: what clients address through the executor."""

from __future__ import annotations

import os

from turnwright.executor.v1 import task_pb2
from turnwright.store.v1 import queue_pb2, registry_pb2, store_service_pb2_grpc
from turnwright.types.v1 import project_pb2, run_pb2

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.kit.auth import current_caller
from turnwright_core.kit.peer import Peer
from turnwright_core.limits import PAGE_SIZE_MAX
from turnwright_core.wire.entries import cursor_from_pb
from turnwright_core.wire.runs import run_from_pb
from turnwright_executor.edge.file_threads import on_files
from turnwright_executor.ports.address import RunAddress
from turnwright_executor.ports.registry import Queued


class StoreRegistry:
    """Implements ports.Registry. Tasks and aborts are stored in the name of the client that calls."""

    def __init__(self, peer: Peer) -> None:
        """Speak through this peer."""
        self._peer = peer
        self._stub = store_service_pb2_grpc.StoreServiceStub(peer.channel)

    async def init_project(
        self, root: str, workspace_id: str, name: str, config_path: str | None
    ) -> project_pb2.Project:
        """Register a project, or find the one of the workspace."""
        request = registry_pb2.InitProjectRequest(
            root=root, workspace_id=workspace_id, name=name, config_path=config_path
        )
        return (await self._peer.call(self._stub.InitProject, request)).project

    async def has_root(self, root: str) -> bool:
        """Whether a project stands at a directory."""
        try:
            real = await on_files(lambda _: os.path.realpath(root))
        except (OSError, ValueError):
            return False
        request = registry_pb2.ListProjectsRequest(page_size=PAGE_SIZE_MAX)
        while True:
            page = await self._peer.call(self._stub.ListProjects, request)
            if any(project.root == real for project in page.projects):
                return True
            if not page.next_page_token:
                return False
            request.page_token = page.next_page_token

    async def run_exists(self, address: RunAddress) -> bool:
        """Whether there is such a run."""
        try:
            await self._peer.call(
                self._stub.GetRun, registry_pb2.GetRunRequest(project=address.project, run=address.run)
            )
        except TurnwrightError as error:
            if error.reason is Reason.RUN_NOT_FOUND:
                return False
            raise
        return True

    async def enqueue(self, task: task_pb2.Task) -> Queued:
        """Put a task into its run's queue."""
        request = queue_pb2.EnqueueLoopRequest(
            project=task.project,
            run=task.run,
            prompt=task.prompt,
            settings=task.settings,
            run_settings=task.run_settings,
            request_id=task.request_id,
        )
        answer = await self._peer.call(self._stub.EnqueueLoop, request, caller=current_caller())
        return Queued(run_from_pb(answer.run), answer.run, answer.loop, cursor_from_pb(answer.cursor), answer.created)

    async def request_abort(self, address: RunAddress, request_id: str) -> run_pb2.Run:
        """Mark that the active loop shall end."""
        request = queue_pb2.RequestAbortRequest(project=address.project, run=address.run, request_id=request_id)
        return (await self._peer.call(self._stub.RequestAbort, request, caller=current_caller())).run

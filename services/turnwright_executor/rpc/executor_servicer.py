"""ExecutorService: each handler decodes, makes one call and answers; what is raised becomes a status in kit.guard."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
from turnwright.executor.v1 import executor_service_pb2 as pb
from turnwright.executor.v1 import executor_service_pb2_grpc, query_pb2, task_pb2
from turnwright.store.v1 import store_service_pb2_grpc

from turnwright_core.kit.auth import current_caller
from turnwright_core.kit.peer import Peer
from turnwright_core.runs import Mode
from turnwright_executor.clients.decisions import Decisions
from turnwright_executor.clients.run_commands import RunCommands, check_prompt
from turnwright_executor.ports.address import RunAddress
from turnwright_executor.ports.queries import Queries
from turnwright_executor.rpc.control_servicer import ControlRpcs, Steering
from turnwright_executor.rpc.proposal_servicer import ProposalRpcs
from turnwright_executor.rpc.stream_servicer import StreamRpcs
from turnwright_executor.watching.hubs import Hubs

if TYPE_CHECKING:  # generic in the stubs only
    Context = grpc.aio.ServicerContext[Any, Any]
else:
    Context = grpc.aio.ServicerContext


class ExecutorServicer(ControlRpcs, ProposalRpcs, StreamRpcs, executor_service_pb2_grpc.ExecutorServiceServicer):
    """Implements turnwright.executor.v1.ExecutorService."""

    def __init__(
        self,
        run_commands: RunCommands,
        queries: Queries,
        hubs: Hubs,
        decisions: Decisions,
        store: Peer,
        steering: Steering,
    ) -> None:
        """Serve these use cases, and the store's by way of `store`."""
        self.store, self.rows = store, store_service_pb2_grpc.StoreServiceStub(store.channel)
        self._control, self._calls = steering.control, steering.calls
        self._project_watch, self._catalogue = steering.project_watch, steering.catalogue
        self._opens_models = steering.opens_models
        self._run_commands = run_commands
        self._queries = queries
        self._hubs = hubs
        self._decisions = decisions

    async def InitProject(self, request: pb.InitProjectRequest, context: Context) -> pb.InitProjectResponse:
        """Make a directory known."""
        config_path = request.config_path if request.HasField("config_path") else None
        project = await self._run_commands.init_project(
            request.root, request.name, config_path, is_trusted=current_caller().holds_secret
        )
        return pb.InitProjectResponse(project=project)

    async def StartRun(self, request: pb.StartRunRequest, context: Context) -> pb.StartRunResponse:
        """Create a run without work."""
        return pb.StartRunResponse(run=await self._queries.create_run(request))

    async def Ask(self, request: pb.AskRequest, context: Context) -> pb.AskResponse:
        """Queue a read-only task."""
        return pb.AskResponse(queued=await self._enqueued(request.task, Mode.ASK))

    async def Act(self, request: pb.ActRequest, context: Context) -> pb.ActResponse:
        """Queue a task."""
        return pb.ActResponse(queued=await self._enqueued(request.task, Mode.ACT))

    async def _enqueued(self, task: task_pb2.Task, mode: Mode) -> task_pb2.QueuedTask:
        # What is refused leaves no fork behind.
        check_prompt(task)
        return await self._run_commands.enqueue(await self._control.fork_for(task), mode)

    async def WatchRun(self, request: pb.WatchRunRequest, context: Context) -> AsyncIterator[pb.WatchRunResponse]:
        """Stream a run's events."""
        after = request.after if request.HasField("after") else None
        async with (
            self._hubs.hold(RunAddress(request.project, request.run)) as hub,
            contextlib.aclosing(hub.watch(after, batched=request.batched)) as events,
        ):
            async for event in events:
                yield event

    async def Abort(self, request: pb.AbortRequest, context: Context) -> pb.AbortResponse:
        """End the active loop."""
        return await self._run_commands.abort(request)

    async def GetRun(self, request: query_pb2.GetRunRequest, context: Context) -> query_pb2.GetRunResponse:
        """Read a run."""
        return await self._queries.get_run(request)

    async def ListRuns(self, request: query_pb2.ListRunsRequest, context: Context) -> query_pb2.ListRunsResponse:
        """List runs."""
        return await self._queries.list_runs(request)

    async def GetEntry(self, request: query_pb2.GetEntryRequest, context: Context) -> query_pb2.GetEntryResponse:
        """Read an entry."""
        return await self._queries.get_entry(request)

    async def ListModels(self, request: query_pb2.ListModelsRequest, context: Context) -> query_pb2.ListModelsResponse:
        """List models."""
        return await self._queries.list_models(request)

    async def GetStatus(self, request: query_pb2.GetStatusRequest, context: Context) -> query_pb2.GetStatusResponse:
        """Tell how things are."""
        return await self._queries.get_status(request)

"""The store over gRPC: what clients change and follow beside the work of runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Final

from turnwright.executor.v1 import control_pb2 as pb
from turnwright.store.v1 import control_pb2, ledger_pb2, read_pb2, registry_pb2, store_service_pb2_grpc, write_pb2

from turnwright_core.entries import EntryWrite
from turnwright_core.errors import Reason, fault
from turnwright_core.kit.auth import current_caller
from turnwright_core.kit.peer import Peer
from turnwright_core.limits import PAGE_BYTES_MAX, PAGE_SIZE_MAX
from turnwright_core.wire.entries import cursor_from_pb, cut_body, write_to_pb
from turnwright_executor.edge.store import StoreLedger
from turnwright_executor.ports.address import RunAddress
from turnwright_executor.ports.ledger import WriteAck

NAMED_MAX: Final = 20
"""Models that are named to who asks for one that there is not."""


class StoreControl:
    """Implements app.control.ControlRows. What changes a run is done in the name of the client that calls."""

    def __init__(self, peer: Peer) -> None:
        """Speak through this peer."""
        self._peer = peer
        self._rows = store_service_pb2_grpc.StoreServiceStub(peer.channel)

    async def fork_run(self, request: pb.ForkRunRequest) -> pb.ForkRunResponse:
        """Make a run that begins with what another one sees."""
        wanted = registry_pb2.ForkRunRequest(
            project=request.project, run=request.run, new_run=request.new_run, turn=request.turn,
            request_id=request.request_id,
        )  # fmt: skip
        return pb.ForkRunResponse(run=(await self._peer.call(self._rows.ForkRun, wanted, caller=current_caller())).run)

    async def rename_run(self, request: pb.RenameRunRequest) -> pb.RenameRunResponse:
        """Give a run another alias."""
        wanted = control_pb2.RenameRunRequest(
            project=request.project, run=request.run, new_run=request.new_run, request_id=request.request_id
        )
        answer = await self._peer.call(self._rows.RenameRun, wanted, caller=current_caller())
        return pb.RenameRunResponse(run=answer.run)

    async def remove_run(self, request: pb.RemoveRunRequest) -> pb.RemoveRunResponse:
        """Remove a run."""
        wanted = registry_pb2.RemoveRunRequest(project=request.project, run=request.run, request_id=request.request_id)
        await self._peer.call(self._rows.RemoveRun, wanted, caller=current_caller())
        return pb.RemoveRunResponse()

    async def configure_run(self, request: pb.ConfigureRunRequest) -> pb.ConfigureRunResponse:
        """Change settings."""
        wanted = control_pb2.ConfigureRunRequest(
            project=request.project, run=request.run, patch=request.patch, request_id=request.request_id
        )
        answer = await self._peer.call(self._rows.ConfigureRun, wanted, caller=current_caller())
        return pb.ConfigureRunResponse(run=answer.run)

    async def inject_message(self, request: pb.InjectMessageRequest) -> control_pb2.InjectMessageResponse:
        """Add a message to a run."""
        wanted = control_pb2.InjectMessageRequest(
            project=request.project, run=request.run, message=request.message, request_id=request.request_id
        )
        return await self._peer.call(self._rows.InjectMessage, wanted, caller=current_caller())

    async def list_entries(self, request: pb.ListEntriesRequest) -> pb.ListEntriesResponse:
        """Entries by patterns; of the run that was written last where none is named."""
        wanted = read_pb2.ListEntriesRequest(
            project=request.project,
            run=request.run or await self._latest_run(request.project),
            pattern=request.pattern,
            body_pattern=request.body_pattern,
            without_bodies=request.without_bodies,
            page_size=request.page_size,
            page_token=request.page_token,
        )
        page = await self._peer.call(self._rows.ListEntries, wanted)
        for entry in page.entries:
            cut_body(entry, 0, PAGE_BYTES_MAX)
        return pb.ListEntriesResponse(entries=page.entries, next_page_token=page.next_page_token)

    async def _latest_run(self, project: str) -> str:
        page = await self._peer.call(self._rows.ListRuns, registry_pb2.ListRunsRequest(project=project, page_size=1))
        if not page.runs:
            raise fault(Reason.RUN_NOT_FOUND, f"There is no run in {project} yet.", project=project, run="")
        return page.runs[0].run

    async def check_model(self, alias: str) -> None:
        """Raises MODEL_NOT_FOUND where there is no such model."""
        request = registry_pb2.ListModelsRequest(page_size=PAGE_SIZE_MAX)
        names: list[str] = []
        while True:
            page = await self._peer.call(self._rows.ListModels, request)
            names += [model.alias for model in page.models]
            if alias in names:
                return
            if not page.next_page_token:
                available = ", ".join(names[:NAMED_MAX]) or "none"
                message = f"There is no model {alias!r}. Available: {available}."
                raise fault(Reason.MODEL_NOT_FOUND, message, model=alias)
            request.page_token = page.next_page_token

    async def add_model(self, request: pb.AddModelRequest) -> pb.AddModelResponse:
        """Add or replace a model."""
        answer = await self._peer.call(self._rows.PutModels, registry_pb2.PutModelsRequest(models=[request.model]))
        return pb.AddModelResponse(model=answer.models[0])

    async def remove_model(self, request: pb.RemoveModelRequest) -> pb.RemoveModelResponse:
        """Remove a model."""
        await self._peer.call(self._rows.DeleteModel, registry_pb2.DeleteModelRequest(alias=request.alias))
        return pb.RemoveModelResponse()

    async def set_file_constraints(self, request: pb.SetFileConstraintsRequest) -> pb.SetFileConstraintsResponse:
        """Take constraints away, then set others: all of it or nothing."""
        wanted = registry_pb2.SetFileConstraintsRequest(
            project=request.project,
            constraints=request.constraints,
            remove_patterns=request.remove_patterns,
            request_id=request.request_id,
        )
        answer = await self._peer.call(self._rows.SetFileConstraints, wanted, caller=current_caller())
        return pb.SetFileConstraintsResponse(constraints=answer.constraints)

    async def list_file_constraints(self, request: pb.ListFileConstraintsRequest) -> pb.ListFileConstraintsResponse:
        """What a project says of its files."""
        wanted = registry_pb2.ListFileConstraintsRequest(
            project=request.project, page_size=request.page_size, page_token=request.page_token
        )
        page = await self._peer.call(self._rows.ListFileConstraints, wanted)
        return pb.ListFileConstraintsResponse(constraints=page.constraints, next_page_token=page.next_page_token)

    async def watch_runs(self, project: str) -> AsyncGenerator[control_pb2.WatchRunsResponse]:
        """The runs of a project as they change, until the caller ends it."""
        request = control_pb2.WatchRunsRequest(project=project)
        # No deadline: it lives as long as somebody looks; keepalive bounds the silence.
        async with self._peer.stream(self._rows.WatchRuns, request, None) as messages:
            async for message in messages:
                yield message

    async def project_root(self, name: str) -> str:
        """The directory of a project. Raises PROJECT_NOT_FOUND."""
        request = registry_pb2.ListProjectsRequest(page_size=1000)
        while True:
            page = await self._peer.call(self._rows.ListProjects, request)
            for project in page.projects:
                if project.name == name:
                    return project.root
            if not page.next_page_token:
                raise fault(Reason.PROJECT_NOT_FOUND, f"There is no project {name!r}.", project=name)
            request.page_token = page.next_page_token


class OutsideLedger(StoreLedger):
    """The ledger for writes from outside of loops: without a fence, so that no record of an open turn is touched."""

    async def write(
        self,
        address: RunAddress,
        epoch: int,  # noqa: ARG002 - nobody holds the run for these writes
        writes: Sequence[EntryWrite],
        *,
        full: bool = False,
        run_status: int = 0,
        read_paths: Sequence[str] = (),
    ) -> WriteAck:
        """Write entries; `full` survives the loss of power."""
        assert not run_status, "only the owner moves a run"
        assert not read_paths, "only the owner reads with what it writes"
        request = ledger_pb2.WriteEntriesRequest(
            project=address.project,
            run=address.run,
            writes=[write_to_pb(write) for write in writes],
            durability=write_pb2.DURABILITY_FULL if full else write_pb2.DURABILITY_NORMAL,
        )
        answer = await self._peer.call(self.stub.WriteEntries, request)
        return WriteAck(tuple(answer.paths), cursor_from_pb(answer.cursor), revisions=tuple(answer.revisions))

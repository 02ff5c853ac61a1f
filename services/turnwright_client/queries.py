"""The calls of a client that only read: projects; runs, turns, messages, entries and packets; models, the status."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from turnwright.entries.v1 import entry_service_pb2, entry_service_pb2_grpc
from turnwright.executor.v1 import executor_service_pb2_grpc, explain_pb2, query_pb2, tools_pb2
from turnwright.models.v1 import model_service_pb2, model_service_pb2_grpc
from turnwright.projects.v1 import project_service_pb2, project_service_pb2_grpc
from turnwright.runs.v1 import run_service_pb2, run_service_pb2_grpc
from turnwright.turns.v1 import turn_service_pb2, turn_service_pb2_grpc
from turnwright.types.v1 import (
    entry_pb2,
    explanation_pb2,
    loop_pb2,
    model_pb2,
    project_pb2,
    run_message_pb2,
    run_pb2,
    turn_pb2,
)

from turnwright_client.retrying import RetryingPeer
from turnwright_core.errors import MissingError, Reason, fault
from turnwright_core.limits import PAGE_SIZE_MAX
from turnwright_core.wire.packets import PacketParts


class QueryCalls:
    """Rpcs of query.proto, explain.proto, EntryService and TurnService. Each raises TurnwrightError."""

    _peer: RetryingPeer
    _runs: run_service_pb2_grpc.RunServiceAsyncStub
    _stub: executor_service_pb2_grpc.ExecutorServiceAsyncStub
    _entries: entry_service_pb2_grpc.EntryServiceAsyncStub
    _projects: project_service_pb2_grpc.ProjectServiceAsyncStub
    _turns: turn_service_pb2_grpc.TurnServiceAsyncStub
    _models: model_service_pb2_grpc.ModelServiceAsyncStub

    async def find_project(self, root: str) -> project_pb2.Project | None:
        """The project of a directory on the executor's host; None if it is not registered. Nothing is written."""
        request = project_service_pb2.GetProjectRequest(root=root)
        try:
            return (await self._peer.call(self._projects.GetProject, request)).project
        except MissingError:
            return None

    def list_projects(self) -> AsyncIterator[project_pb2.Project]:
        """All projects that the caller may use, sorted by name."""
        request = project_service_pb2.ListProjectsRequest(page_size=PAGE_SIZE_MAX)
        return self._peer.items(self._projects.ListProjects, request, lambda page: page.projects)

    async def list_tools(
        self, project: str, *, check: bool = False, server: str = "", timeout_s: float | None = None
    ) -> tools_pb2.ListToolsResponse:
        """The tools that the next loop of a project gets; `check` asks their servers now."""
        request = tools_pb2.ListToolsRequest(project=project, check=check, server=server)
        return await self._peer.call(self._stub.ListTools, request, timeout_s=timeout_s)

    async def get_run(
        self, project: str, run: str, turns_max: int = 0, history_max: int = 0
    ) -> run_service_pb2.GetRunResponse:
        """The run with its loops, its latest turns and its latest entries, at most as many as given."""
        request = run_service_pb2.GetRunRequest(project=project, run=run, turns_max=turns_max, history_max=history_max)
        return await self._peer.call(self._runs.GetRun, request)

    async def get_loop(self, project: str, run: str, sequence: int) -> loop_pb2.Loop:
        """One loop of the run. Raises RUN_NOT_FOUND if it is not among the latest hundred."""
        answer = await self.get_run(project, run)
        for loop in answer.loops:
            if loop.sequence == sequence:
                return loop
        raise fault(Reason.RUN_NOT_FOUND, f"Run {run} has no loop {sequence}.", project=project, run=run)

    def list_runs(self, project: str) -> AsyncIterator[run_pb2.Run]:
        """All runs of the project, most recently written first."""
        request = run_service_pb2.ListRunsRequest(project=project, page_size=PAGE_SIZE_MAX)
        return self._peer.items(self._runs.ListRuns, request, lambda page: page.runs)

    def list_messages(self, project: str, run: str) -> AsyncIterator[run_message_pb2.RunMessage]:
        """Every message of the run, in their order."""
        request = turn_service_pb2.ListMessagesRequest(project=project, run=run, page_size=PAGE_SIZE_MAX)
        return self._peer.items(self._turns.ListMessages, request, lambda page: page.messages)

    def list_turns(self, project: str, run: str, numbers: Sequence[int] = ()) -> AsyncIterator[turn_pb2.Turn]:
        """The turns of the run, latest first; or those with these numbers, inherited ones too, earliest first."""
        request = turn_service_pb2.ListTurnsRequest(project=project, run=run, page_size=PAGE_SIZE_MAX, numbers=numbers)
        return self._peer.items(self._turns.ListTurns, request, lambda page: page.turns)

    async def read_packet(self, project: str, run: str, turn: int = 0) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """What the model was sent in a turn: roles, each with its text in pieces. Turn 0: the latest that has a packet.

        `turnwright_core.packet_digest` of it is the `packet_digest` of the turn. Raises TURN_NOT_FOUND.
        """
        request, packet = turn_service_pb2.ReadPacketRequest(project=project, run=run, turn=turn), PacketParts()
        async with self._peer.stream(self._turns.ReadPacket, request, self._peer.timeout_s) as parts:
            async for part in parts:
                packet.add(part)
        if not packet.is_whole:
            raise self._peer.cut_short("its last part")
        return packet.messages()

    async def explain_packet(
        self, project: str, run: str, turn: int = 0, pieces_max: int | None = None
    ) -> explanation_pb2.PacketExplanation:
        """What the packet of a turn consists of, and why; turn 0 is the latest. Raises TURN_NOT_FOUND."""
        request = explain_pb2.ExplainPacketRequest(project=project, run=run, turn=turn, pieces_max=pieces_max)
        return (await self._peer.call(self._stub.ExplainPacket, request)).explanation

    async def preview_packet(
        self, project: str, run: str, pieces_max: int | None = None
    ) -> explanation_pb2.PacketExplanation:
        """What the packet of the next turn would consist of. Raises RUN_NOT_FOUND."""
        request = explain_pb2.ExplainPacketRequest(project=project, run=run, pieces_max=pieces_max, next=True)
        return (await self._peer.call(self._stub.ExplainPacket, request)).explanation

    async def list_models(self) -> list[model_pb2.Model]:
        request = model_service_pb2.ListModelsRequest(page_size=PAGE_SIZE_MAX)
        return [model async for model in self._peer.items(self._models.ListModels, request, lambda page: page.models)]

    async def get_entry(self, project: str, run: str, path: str) -> entry_pb2.Entry:
        request = entry_service_pb2.GetEntryRequest(project=project, run=run, path=path)
        entry = (await self._peer.call(self._entries.GetEntry, request)).entry
        parts, hash_ = [entry.body], entry.hash
        request.body_offset = len(entry.body.encode())
        while 0 < request.body_offset < entry.body_size_bytes:
            part = (await self._peer.call(self._entries.GetEntry, request)).entry
            if part.hash != hash_:
                # The entry was written while its body was read: do not join parts of two bodies.
                return await self.get_entry(project, run, path)
            parts.append(part.body)
            request.body_offset += len(part.body.encode())
        entry.body = "".join(parts)
        return entry

    def list_entries(
        self, project: str, run: str = "", pattern: str = "", body_pattern: str = "", *, bodies: bool = True
    ) -> AsyncIterator[entry_pb2.Entry]:
        """Entries of a run whose path and body match the patterns, sorted by path; an empty run is the latest one."""
        request = entry_service_pb2.ListEntriesRequest(
            project=project,
            run=run,
            pattern=pattern,
            body_pattern=body_pattern,
            without_bodies=not bodies,
            page_size=PAGE_SIZE_MAX,
        )
        return self._peer.items(self._entries.ListEntries, request, lambda page: page.entries)

    async def get_status(
        self, *, check_models: bool = False, timeout_s: float | None = None
    ) -> query_pb2.GetStatusResponse:
        """The status of the services; with `check_models` their vendors are asked as well."""
        request = query_pb2.GetStatusRequest(check_models=check_models)
        return await self._peer.call(self._stub.GetStatus, request, timeout_s)

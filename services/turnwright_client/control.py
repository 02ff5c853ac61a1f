"""The calls of a client other than giving tasks: creating, steering and watching runs, their plans and streams.

A producer of a stream passes the length returned by each answer as the next offset; then a failed append can be retried
without duplicating output.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final, Literal, TypeAlias

from turnwright.documents.v1 import document_service_pb2, document_service_pb2_grpc
from turnwright.executor.v1 import (
    control_pb2,
    event_pb2,
    executor_service_pb2,
    executor_service_pb2_grpc,
    watch_pb2,
)
from turnwright.models.v1 import model_service_pb2, model_service_pb2_grpc
from turnwright.plans.v1 import plan_service_pb2, plan_service_pb2_grpc
from turnwright.projects.v1 import project_service_pb2, project_service_pb2_grpc
from turnwright.runs.v1 import run_service_pb2, run_service_pb2_grpc, watch_runs_pb2
from turnwright.streams.v1 import stream_service_pb2, stream_service_pb2_grpc
from turnwright.types.v1 import entry_pb2, model_pb2, project_pb2, run_pb2, settings_pb2, stream_pb2
from turnwright.types.v1.plan_pb2 import Plan

from turnwright_client.retrying import RetryingPeer
from turnwright_client.watch import WatchPolicy, watch_inbox
from turnwright_core import __version__
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import PAGE_SIZE_MAX

ConstraintKind: TypeAlias = project_pb2.FileConstraintKind.ValueType
RunsMessage = watch_runs_pb2.WatchRunsResponse
PlansMessage = plan_service_pb2.WatchPlansResponse
PlanForm = Literal["none", "legacy", "operations"]
"""The form in which a watch receives plans."""

PLAN_FORMS: Final[Mapping[PlanForm, executor_service_pb2.PlanEvents.ValueType]] = {
    "none": executor_service_pb2.PLAN_EVENTS_UNSPECIFIED,
    "legacy": executor_service_pb2.PLAN_EVENTS_LEGACY,
    "operations": executor_service_pb2.PLAN_EVENTS_OPERATIONS,
}


class ControlCalls:
    """Rpcs of runs, plans, streams, models and projects, and the executor's own.

    Each raises TurnwrightError; an empty `plan_id` means `main`.
    """

    _peer: RetryingPeer
    _policy: WatchPolicy
    _stub: executor_service_pb2_grpc.ExecutorServiceAsyncStub
    _documents: document_service_pb2_grpc.DocumentServiceAsyncStub
    _models: model_service_pb2_grpc.ModelServiceAsyncStub
    _plans: plan_service_pb2_grpc.PlanServiceAsyncStub
    _projects: project_service_pb2_grpc.ProjectServiceAsyncStub
    _runs: run_service_pb2_grpc.RunServiceAsyncStub
    _streams: stream_service_pb2_grpc.StreamServiceAsyncStub

    async def create_run(
        self, project: str, run: str, settings: settings_pb2.RunSettings, request_id: str = ""
    ) -> run_pb2.Run:
        """Create a run without a task; an empty alias is generated."""
        request = run_service_pb2.CreateRunRequest(project=project, run=run, settings=settings, request_id=request_id)
        return (await self._peer.call(self._runs.CreateRun, request)).run

    async def fork_run(
        self, project: str, run: str, *, new_run: str = "", turn: int = 0, request_id: str = ""
    ) -> run_pb2.Run:
        """Create a run that starts with what another one sees now, or saw at the end of a turn."""
        request = run_service_pb2.ForkRunRequest(
            project=project, run=run, new_run=new_run, turn=turn, request_id=request_id
        )
        return (await self._peer.call(self._runs.ForkRun, request)).run

    async def rename_run(self, project: str, run: str, new_run: str, request_id: str = "") -> run_pb2.Run:
        """Change the alias of a run; refused while it has a loop that has not ended."""
        request = run_service_pb2.RenameRunRequest(project=project, run=run, new_run=new_run, request_id=request_id)
        return (await self._peer.call(self._runs.RenameRun, request)).run

    async def delete_run(self, project: str, run: str, request_id: str = "") -> None:
        """Delete a run; refused while it has a loop that has not ended."""
        request = run_service_pb2.DeleteRunRequest(project=project, run=run, request_id=request_id)
        await self._peer.call(self._runs.DeleteRun, request)

    async def configure_run(
        self, project: str, run: str, patch: settings_pb2.RunSettingsPatch, request_id: str = ""
    ) -> run_pb2.Run:
        request = run_service_pb2.ConfigureRunRequest(project=project, run=run, patch=patch, request_id=request_id)
        return (await self._peer.call(self._runs.ConfigureRun, request)).run

    async def export_run(self, project: str, run: str, *, without_files: bool = False) -> AsyncGenerator[bytes, None]:
        """A run as one JSON document, in parts of bytes. If you stop before it ends, close it.

        Raises SERVICE_UNAVAILABLE if it was cut short; `without_files` leaves out the entries of project files.
        """
        request = document_service_pb2.ExportRunRequest(project=project, run=run, without_files=without_files)
        is_whole = False
        async with self._peer.stream(self._documents.ExportRun, request, None) as parts:
            async for part in parts:
                yield part.data
                is_whole = part.last
        if not is_whole:
            raise self._peer.cut_short("its last part")

    async def import_run(
        self,
        project: str,
        parts: AsyncIterable[bytes] | Iterable[bytes],
        *,
        run: str = "",
        document_id: str = "",
        staged: bool = False,
        request_id: str = "",
    ) -> document_service_pb2.ImportRunResponse:
        """Make a run of a document, which comes in parts of at most 1 MiB; an empty alias is that of the document.

        With `document_id` the document must be of this run. With `staged` it becomes no run, and the answer has the
        `staged_id` that RestoreFromTrajectory takes. The answer says what was left out.
        """

        async def requests() -> AsyncGenerator[document_service_pb2.ImportRunRequest, None]:
            yield document_service_pb2.ImportRunRequest(
                project=project, run=run, document_id=document_id, staged=staged, request_id=request_id
            )
            if isinstance(parts, AsyncIterable):
                async for part in parts:
                    yield document_service_pb2.ImportRunRequest(data=part)
            else:
                for part in parts:
                    yield document_service_pb2.ImportRunRequest(data=part)

        return await self._peer.upload(self._documents.ImportRun, requests(), None)

    async def inject_message(
        self, project: str, run: str, message: str, request_id: str = ""
    ) -> run_service_pb2.InjectMessageResponse:
        """Send the model a message for its next turn, without giving it a task."""
        request = run_service_pb2.InjectMessageRequest(project=project, run=run, message=message, request_id=request_id)
        return await self._peer.call(self._runs.InjectMessage, request)

    async def call_tool(
        self,
        project: str,
        run: str,
        tool: str,
        attributes: Mapping[str, str] | None = None,
        body: str = "",
        request_id: str = "",
        timeout_s: float | None = None,
    ) -> entry_pb2.Entry:
        """Run a command with a tool; its record has the result, also if it failed. None: the client's own timeout."""
        request = control_pb2.CallToolRequest(
            project=project, run=run, tool=tool, attributes=attributes, body=body, request_id=request_id
        )
        return (await self._peer.call(self._stub.CallTool, request, timeout_s)).record

    async def set_model(self, model: model_pb2.Model) -> model_pb2.Model:
        """Add a model, or replace the one with the same alias. What it leaves out, its vendor is asked."""
        return (await self._peer.call(self._models.SetModel, model_service_pb2.SetModelRequest(model=model))).model

    async def delete_model(self, alias: str) -> None:
        await self._peer.call(self._models.DeleteModel, model_service_pb2.DeleteModelRequest(alias=alias))

    async def set_file_constraints(
        self, project: str, constraints: Mapping[str, ConstraintKind], remove: Sequence[str] = (), request_id: str = ""
    ) -> list[project_pb2.FileConstraint]:
        """Set constraints on files by pattern; those in `remove` are removed."""
        wanted = [project_pb2.FileConstraint(pattern=pattern, kind=kind) for pattern, kind in constraints.items()]
        request = project_service_pb2.SetFileConstraintsRequest(
            project=project, constraints=wanted, remove_patterns=remove, request_id=request_id
        )
        return list((await self._peer.call(self._projects.SetFileConstraints, request)).constraints)

    async def list_file_constraints(self, project: str) -> list[project_pb2.FileConstraint]:
        """The file constraints of the project, sorted by pattern."""
        request = project_service_pb2.ListFileConstraintsRequest(project=project, page_size=PAGE_SIZE_MAX)
        found = self._peer.items(self._projects.ListFileConstraints, request, lambda page: page.constraints)
        return [constraint async for constraint in found]

    async def notify(self, project: str, run: str, message: event_pb2.Notice | event_pb2.Rendering) -> None:
        """Send a transient message to the watchers of a run."""
        request = watch_pb2.NotifyRequest(project=project, run=run)
        if isinstance(message, event_pb2.Notice):
            request.notice.CopyFrom(message)
        else:
            request.rendering.CopyFrom(message)
        await self._peer.call(self._stub.Notify, request)

    async def discover(self) -> watch_pb2.DiscoverResponse:
        """What the executor supports: methods, notifications, tools."""
        return await self._peer.call(self._stub.Discover, watch_pb2.DiscoverRequest())

    def watch_runs(self, project: str, after: str = "") -> AsyncGenerator[RunsMessage, None]:
        """Stream the runs of a project: a snapshot, or what happened since a cursor; then changes.

        Goes on by itself where it was after a lost connection. Raises SERVICE_UNAVAILABLE if the executor has another
        major version. If you stop before it ends, close it.
        """
        request = watch_runs_pb2.WatchRunsRequest(project=project, after=after)

        async def open_stream() -> AsyncGenerator[RunsMessage, None]:
            async with self._peer.stream(self._runs.WatchRuns, request, None) as messages:
                async for message in messages:
                    if message.HasField("hello"):
                        check_version(message.hello.version)
                    request.after = message.cursor or request.after
                    yield message

        return watch_inbox(lambda: contextlib.aclosing(open_stream()), self._policy)

    async def set_plan(self, project: str, run: str, plan: Plan, request_id: str = "") -> Plan:
        """Create or replace a plan; its id, kind, body or items, and mode are used."""
        request = plan_service_pb2.SetPlanRequest(project=project, run=run, plan=plan, request_id=request_id)
        return (await self._peer.call(self._plans.SetPlan, request)).plan

    async def update_plan(self, project: str, run: str, delta: str, *, plan_id: str = "", request_id: str = "") -> Plan:
        """Append to a plan; returns it with all deltas of its version."""
        request = plan_service_pb2.UpdatePlanRequest(
            project=project, run=run, plan_id=plan_id, delta=delta, request_id=request_id
        )
        return (await self._peer.call(self._plans.UpdatePlan, request)).plan

    async def delete_plan(self, project: str, run: str, *, plan_id: str = "", request_id: str = "") -> None:
        """Delete a plan; its versions can still be read."""
        request = plan_service_pb2.DeletePlanRequest(project=project, run=run, plan_id=plan_id, request_id=request_id)
        await self._peer.call(self._plans.DeletePlan, request)

    async def get_plan(self, project: str, run: str, *, plan_id: str = "", version: int = 0) -> Plan:
        """A plan with its deltas; version 0 is the latest, unless the plan was deleted."""
        request = plan_service_pb2.GetPlanRequest(project=project, run=run, plan_id=plan_id, version=version)
        return (await self._peer.call(self._plans.GetPlan, request)).plan

    def list_plans(self, project: str, run: str) -> AsyncIterator[Plan]:
        """The latest version of each plan of the run, with its deltas, sorted by plan_id."""
        request = plan_service_pb2.ListPlansRequest(project=project, run=run, page_size=PAGE_SIZE_MAX)
        return self._peer.items(self._plans.ListPlans, request, lambda page: page.plans)

    def watch_plans(self, project: str, run: str) -> AsyncGenerator[PlansMessage, None]:
        """Stream the plans of a run, then changes. Reconnects by itself.

        After a reconnect a snapshot replaces everything. If you stop before it ends, close it (`contextlib.aclosing`).
        """
        request = plan_service_pb2.WatchPlansRequest(project=project, run=run)
        return watch_inbox(partial(self._peer.stream, self._plans.WatchPlans, request, None), self._policy)

    async def open_stream(
        self, project: str, run: str, tool: str, target: str, *, channels: Sequence[int] = (), request_id: str = ""
    ) -> stream_service_pb2.OpenStreamResponse:
        """Begin a stream produced by the caller; identified by the path in the answer."""
        request = stream_service_pb2.OpenStreamRequest(
            project=project, run=run, tool=tool, target=target, channels=channels, request_id=request_id
        )
        return await self._peer.call(self._streams.OpenStream, request)

    async def append_stream(
        self,
        project: str,
        run: str,
        path: str,
        channel: int,
        text: str,
        *,
        offset: int | None = None,
        request_id: str = "",
    ) -> stream_pb2.StreamChannel:
        """Append to a channel, or send a heartbeat with an empty text. Returns the channel as it is now."""
        request = stream_service_pb2.AppendStreamRequest(
            project=project, run=run, path=path, channel=channel, text=text, offset=offset, request_id=request_id
        )
        return (await self._peer.call(self._streams.AppendStream, request)).channel

    async def end_stream(
        self,
        project: str,
        run: str,
        path: str,
        end: stream_pb2.StreamEnd.ValueType = stream_pb2.STREAM_END_COMPLETED,
        *,
        exit_code: int | None = None,
        duration_s: float | None = None,
        reason: str = "",
        request_id: str = "",
    ) -> Sequence[stream_pb2.StreamChannel]:
        """End a stream: of the caller with a result, or given up; of anybody, cancelled. Returns what it ended."""
        request = stream_service_pb2.EndStreamRequest(
            project=project, run=run, path=path, end=end, exit_code=exit_code, reason=reason, request_id=request_id
        )
        if duration_s is not None:
            request.duration.FromTimedelta(timedelta(seconds=duration_s))
        return (await self._peer.call(self._streams.EndStream, request)).channels


def check_version(version: str, own: str = __version__) -> None:
    """Refuse an executor with another major version (RU241). Raises PreconditionError."""
    if version.partition(".")[0] != own.partition(".")[0]:
        message = f"The executor has version {version}, this client {own}: their major versions must be the same."
        raise fault(Reason.VERSION_MISMATCH, message, version=version, client=own)


class RunList:
    """The runs of a project, folded from the messages of a watch."""

    def __init__(self) -> None:
        self.runs: dict[str, run_pb2.RunOverview] = {}
        self.is_complete = False
        """Whether a whole snapshot has been received."""

    def apply(self, message: RunsMessage) -> None:
        match message.WhichOneof("event"):
            case "snapshot":
                if message.snapshot.part == 0:
                    self.runs, self.is_complete = {}, False
                self._take(message.snapshot.runs)
                self.is_complete = message.snapshot.last
            case "changed":
                for alias in message.changed.deleted:
                    self.runs.pop(alias, None)
                self._take(message.changed.created)
                self._take(message.changed.updated)
            case _:
                pass

    def _take(self, runs: Sequence[run_pb2.RunOverview]) -> None:
        self.runs.update((one.run.run, one) for one in runs)

"""ExecutorService: each request is stored first, then the run's worker is notified.

Exceptions become a status in kit.guard.
Source: rows RU003, RU037-RU039, RU109, RU139, RU230-RU233; decisions C14, C36.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from turnwright.executor.v1 import control_pb2 as pb
from turnwright.executor.v1 import (
    event_pb2,
    executor_service_pb2_grpc,
    explain_pb2,
    query_pb2,
    task_pb2,
    tools_pb2,
    watch_pb2,
)
from turnwright.executor.v1.executor_service_pb2 import WatchRunRequest, WatchRunResponse
from turnwright.models.v1 import model_service_pb2, model_service_pb2_grpc
from turnwright.projects.v1.project_service_pb2 import SetFileConstraintsRequest
from turnwright.projects.v1.project_service_pb2_grpc import ProjectServiceStub
from turnwright.runs.v1 import run_service_pb2, run_service_pb2_grpc
from turnwright.store.v1 import queue_pb2, store_service_pb2_grpc
from turnwright.tool.v1 import login_service_pb2
from turnwright.types.v1 import cursor_pb2, session_pb2, settings_pb2
from turnwright_values.types import SessionState

from turnwright_core.checks import check_bytes, check_chars, invalid
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.limits import (
    EVENT_BODY_BYTES_MAX,
    NAME_CHARS_MAX,
    NOTICE_BYTES_MAX,
    PAGE_SIZE_MAX,
    PROMPT_BYTES_MAX,
)
from turnwright_core.suggestions import unknown_model
from turnwright_core.wire.entries import cursor_from_pb, entry_to_pb
from turnwright_core.wire.runs import constraint_to_pb
from turnwright_executor.clients.file_constraints import kept_file
from turnwright_executor.clients.tool_calls import ClientCommand, ToolCalls
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.ledger import CreatedRun, Ledger
from turnwright_executor.ports.models import CheckVendor
from turnwright_executor.rpc.login_servicer import ToolLoginRpcs
from turnwright_executor.rpc.query_servicer import QueryRpcs
from turnwright_executor.runs.scheduler import Scheduler
from turnwright_executor.watching.hubs import Hubs
from turnwright_executor.watching.run_fold import FreshRun
from turnwright_grammar.reply import Command
from turnwright_kit.identity.caller import Caller, current_caller
from turnwright_kit.identity.policy import Policy
from turnwright_kit.peer import Peer

"""Maximum number of models that the error for an unknown one lists."""


class ExecutorServicer(
    QueryRpcs,
    ToolLoginRpcs,
    executor_service_pb2_grpc.ExecutorServiceServicer,
):
    """Implements turnwright.executor.v1.ExecutorService."""

    watch_events: Callable[[WatchRunRequest, Any], AsyncIterator[WatchRunResponse]]
    """WatchRun, wherever the run is."""

    def __init__(
        self,
        store: Peer,
        ledger: Ledger,
        hubs: Hubs,
        scheduler: Scheduler,
        calls: ToolCalls,
        like_run: Callable[[str], str],
        explain: Callable[[explain_pb2.ExplainPacketRequest], Awaitable[explain_pb2.ExplainPacketResponse]],
        status: Callable[[query_pb2.GetStatusRequest], Awaitable[query_pb2.GetStatusResponse]],
        check_vendor: CheckVendor,
        catalogue: watch_pb2.DiscoverResponse,
        policy: Policy,
        list_tools: Callable[[tools_pb2.ListToolsRequest], Awaitable[tools_pb2.ListToolsResponse]],
        login_step: Callable[[login_service_pb2.LoginRequest], Awaitable[login_service_pb2.LoginResponse]],
    ) -> None:
        self.store = store
        self.rows: store_service_pb2_grpc.StoreServiceAsyncStub = store_service_pb2_grpc.StoreServiceStub(store.channel)
        self.runs: run_service_pb2_grpc.RunServiceAsyncStub = run_service_pb2_grpc.RunServiceStub(store.channel)
        self._ledger = ledger
        self._hubs = hubs
        self._scheduler = scheduler
        self._calls = calls
        self._like_run = like_run
        self._status = status
        self._explain = explain
        self.check_vendor = check_vendor
        self._catalogue = catalogue
        self._policy = policy
        self._list_tools = list_tools
        self._login_step = login_step

    async def Ask(self, request: task_pb2.AskRequest, context: Any) -> task_pb2.AskResponse:
        return task_pb2.AskResponse(queued=await self._enqueued(request.task, settings_pb2.MODE_ASK))

    async def Act(self, request: task_pb2.ActRequest, context: Any) -> task_pb2.ActResponse:
        return task_pb2.ActResponse(queued=await self._enqueued(request.task, settings_pb2.MODE_ACT))

    async def _enqueued(self, task: task_pb2.Task, mode: settings_pb2.Mode.ValueType) -> task_pb2.QueuedTask:
        # What is refused leaves no fork behind.
        _check_prompt(task.prompt)
        for model in {task.settings.model, task.run_settings.model}:
            await self.check_vendor(model, "settings.model")
        alias = await self._fork(task) if task.HasField("fork") else task.run
        wanted = queue_pb2.EnqueueLoopRequest(
            project=task.project,
            run=alias,
            prompt=task.prompt,
            settings=task.settings,
            run_settings=task.run_settings if task.HasField("run_settings") else None,
            request_id=task.request_id,
        )
        wanted.settings.mode = mode
        address = RunAddress(task.project, alias)
        created = None if self._hubs.has(address) else await self._created(wanted)
        if created is None:
            # The run is opened before the task is stored, so that its cursor precedes all that the task causes.
            async with self._hubs.hold(address) as hub:
                before, state = hub.before_call(), hub.state
                answer = await self.store.call(self.rows.EnqueueLoop, wanted, caller=current_caller())
                cursor = before.cursor(answer.cursor)
            self._scheduler.kick(address)
        else:
            answer = created.answer
            cursor, state = await self._opened(created)
        # What the run was doing at the cursor: from there on, events report it.
        answer.run.state = session_pb2.SessionState.ValueType(int(state))
        return task_pb2.QueuedTask(run=answer.run, loop=answer.loop, cursor=cursor)

    async def _created(self, wanted: queue_pb2.EnqueueLoopRequest) -> CreatedRun | None:
        """The run that the task creates, claimed if it can be worked on here at once; None if it exists."""
        like_run = "" if wanted.settings.no_repo else self._like_run(wanted.project)
        try:
            return await self._scheduler.create(partial(self._ledger.create_run, wanted, current_caller(), like_run))
        except TurnwrightError as error:
            if error.reason is not Reason.RUN_EXISTS:
                raise
            wanted.ClearField("new")
            return None

    async def _opened(self, created: CreatedRun) -> tuple[cursor_pb2.EventCursor, SessionState]:
        """Where the events of the task begin, and what the run was doing then."""
        answer = created.answer
        address = RunAddress(answer.run.project, answer.run.run)
        fresh = FreshRun(answer.run, cursor_from_pb(answer.cursor)) if answer.created else None
        try:
            async with self._hubs.hold(address, fresh=fresh) as hub:
                if fresh:
                    # All events of a fresh run are numbered: the task's begin with the first.
                    return cursor_pb2.EventCursor(epoch=hub.epoch), hub.state
                return hub.before_call().cursor(answer.cursor), hub.state
        finally:
            # The task is stored, so it is worked on even if the caller has gone.
            self._scheduler.kick(address, created.claim)

    async def _fork(self, task: task_pb2.Task) -> str:
        """The alias of the fork that a task requests. Idempotent: a repeated request finds the same fork.

        Raises TurnwrightError. If the model does not exist, no fork is created.
        """
        if task.settings.model and "/" not in task.settings.model:
            await self._check_model(task.settings.model)
        wanted = run_service_pb2.ForkRunRequest(
            project=task.project, run=task.run, new_run=task.fork.run, turn=task.fork.turn, request_id=task.request_id
        )
        return (await self.store.call(self.runs.ForkRun, wanted, caller=current_caller())).run.run

    async def _check_model(self, alias: str) -> None:
        models = model_service_pb2_grpc.ModelServiceStub(self.store.channel)
        request = model_service_pb2.ListModelsRequest(page_size=PAGE_SIZE_MAX)
        found = self.store.items(models.ListModels, request, lambda page: page.models)
        names = [model.alias async for model in found]
        if alias not in names:
            raise fault(Reason.MODEL_NOT_FOUND, unknown_model(alias, names), model=alias)

    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        """Carry out a client's command with a tool. File constraints that it implies are set first.

        The run's owner, whichever executor that is, sees it in the change feed.
        Source: rows RU117-RU120, RU226-RU232, RU238, RU240-RU246; decisions C13, C14, C31.
        """
        caller = current_caller()
        written = Command(request.tool, dict(request.attributes), request.body)
        command, kept = kept_file(await self._calls.read(request.project, written))
        self._policy.check_project(caller, self._calls.right_for(command), request.project, f"CallTool {request.tool}")
        await self.check_seen(request)
        if kept:
            wanted = SetFileConstraintsRequest(project=request.project, constraints=[constraint_to_pb(kept)])
            projects = ProjectServiceStub(self.store.channel)
            await self.store.call(projects.SetFileConstraints, wanted, caller=caller)
        address = RunAddress(request.project, request.run)
        call = ClientCommand(address, command, caller, request.request_id)
        return pb.CallToolResponse(record=entry_to_pb(await self._calls.call(call)))

    def WatchRun(self, request: WatchRunRequest, context: Any) -> AsyncIterator[WatchRunResponse]:
        return self.watch_events(request, context)

    async def Notify(self, request: watch_pb2.NotifyRequest, context: Any) -> watch_pb2.NotifyResponse:
        message = _notification(request)
        await self.check_seen(request)
        async with self._hubs.hold(RunAddress(request.project, request.run)) as hub:
            hub.publish(message)
        return watch_pb2.NotifyResponse()

    async def Discover(self, request: watch_pb2.DiscoverRequest, context: Any) -> watch_pb2.DiscoverResponse:
        return self._catalogue


def _check_prompt(prompt: str) -> None:
    """Raises INVALID_FIELD for an empty prompt, LIMIT_EXCEEDED for one that is too long."""
    check_bytes("prompt", prompt, PROMPT_BYTES_MAX)
    if not prompt.strip():
        raise invalid("prompt", "The prompt is empty. Say what to do.")


def _notification(request: watch_pb2.NotifyRequest) -> WatchRunResponse:
    match request.WhichOneof("message"):
        case "notice":
            return WatchRunResponse(notice=_checked_notice(request.notice, current_caller()))
        case "rendering":
            check_bytes("rendering.text", request.rendering.text, EVENT_BODY_BYTES_MAX)
            check_chars("rendering.id", request.rendering.id, NAME_CHARS_MAX)
            return WatchRunResponse(rendering=request.rendering)
        case _:
            raise invalid("message", "Set `notice` or `rendering`.")


def _checked_notice(notice: event_pb2.Notice, caller: Caller) -> event_pb2.Notice:
    if not notice.text.strip():
        raise invalid("notice.text", "The notice has no text.")
    check_bytes("notice.text", notice.text, NOTICE_BYTES_MAX)
    check_chars("notice.source", notice.source, NAME_CHARS_MAX)
    if not caller.is_trusted:
        notice.source = caller.name
    notice.level = notice.level or event_pb2.NOTICE_LEVEL_INFO
    return notice

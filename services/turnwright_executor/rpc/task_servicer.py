"""Rpcs that start work: each request is stored first, then the run's worker is notified.

Source: rows RU003, RU037-RU039, RU109, RU139, RU230-RU233; decisions C14, C36.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from typing import Any, Final

from turnwright.executor.v1 import executor_service_pb2 as pb
from turnwright.executor.v1 import task_pb2
from turnwright.models.v1 import model_service_pb2, model_service_pb2_grpc
from turnwright.runs.v1 import run_service_pb2, run_service_pb2_grpc
from turnwright.store.v1 import queue_pb2, registry_pb2
from turnwright.types.v1 import cursor_pb2, session_pb2, settings_pb2

from turnwright_core.checks import check_bytes, invalid
from turnwright_core.claims import CreatedRun, CreateRunCall
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.kit.auth import current_caller
from turnwright_core.limits import PAGE_SIZE_MAX, PROMPT_BYTES_MAX
from turnwright_core.runs import SessionState
from turnwright_core.suggestions import did_you_mean
from turnwright_core.wire.entries import cursor_from_pb
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.ports.workspaces import Admits, FindProject, Locate, WhyUnfit
from turnwright_executor.rpc.forwarding import Forwarding, copy_fields
from turnwright_executor.rpc.project_gate import closed_error
from turnwright_executor.runs.scheduler import Scheduler
from turnwright_executor.watching.hubs import Hubs
from turnwright_executor.watching.run_fold import FreshRun

NAMED_MAX: Final = 20
"""Maximum number of models that the error for an unknown one lists."""


class TaskRpcs(Forwarding):
    """InitProject, Ask and Act."""

    _ledger: Ledger
    runs: run_service_pb2_grpc.RunServiceAsyncStub
    _hubs: Hubs
    _scheduler: Scheduler
    _locate: Locate
    _like_run: Callable[[str], str]
    """The run of a project whose files a new one adopts; empty: none."""
    _admits: Admits
    _unfit: WhyUnfit
    _find_project: FindProject

    async def InitProject(self, request: pb.InitProjectRequest, context: Any) -> pb.InitProjectResponse:
        """Register a directory as a project. Raises WORKSPACE_UNAVAILABLE if it does not exist.

        Raises TIER_FORBIDDEN if the caller may not use it; the error does not tell whether it exists.
        """
        root = request.root
        is_trusted = current_caller().holds_secret
        if not is_trusted and PurePath(root).is_absolute():
            await self._check_root(root)
        if PurePath(root).is_absolute() and not request.force:
            await self._check_fit(root)
        workspace = await self._locate(root)
        # Looked at again: a link on the way may have changed meanwhile.
        if workspace and not is_trusted:
            await self._check_root(workspace.root)
        if request.HasField("clients") and not is_trusted:
            raise fault(
                Reason.TIER_FORBIDDEN,
                "Only the deployment's secret opens a project to derived tokens, or closes it.",
                tier="system",
                ceiling="client",
            )
        if workspace is None:
            raise fault(
                Reason.WORKSPACE_UNAVAILABLE,
                f"{root!r} is not a directory that this executor can see. Name an existing one by its absolute path.",
                project="",
                root=root,
            )
        wanted = copy_fields(request, registry_pb2.InitProjectRequest)
        wanted.root, wanted.workspace_id = workspace.root, workspace.id
        project = (await self.store.call(self.rows.InitProject, wanted)).project
        project.copied_from = workspace.copied_from
        return pb.InitProjectResponse(project=project)

    async def _check_fit(self, root: str) -> None:
        """Before anything is written there: its marker makes a directory a project."""
        if (what := await self._unfit(root)) and await self._find_project(root) is None:
            raise fault(
                Reason.WORKSPACE_UNAVAILABLE,
                f"{root!r} is {what}, and all that lies in it would be the project. Name the project's own directory "
                "with --project; `turnwright project --force` takes this one all the same.",
                project="",
                root=root,
            )

    async def _check_root(self, root: str) -> None:
        if not await self._admits(root):
            raise closed_error(repr(root))

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
        wanted = copy_fields(task, queue_pb2.EnqueueLoopRequest)
        wanted.run, wanted.settings.mode = alias, mode
        address = RunAddress(task.project, alias)
        created = None if self._hubs.has(address) else await self._created(wanted)
        if created is None:
            # The run is opened before the task is stored, so that its cursor precedes all that the task causes.
            async with self._hubs.hold(address) as hub:
                before, state = hub.before_call(), hub.state
                rows: Any = self.rows
                queued: CreatedRun = await self.store.call(
                    rows.EnqueueLoop, CreateRunCall(wanted), caller=current_caller()
                )
                answer = queued.answer
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
        pages = self.store.pages(models.ListModels, model_service_pb2.ListModelsRequest(page_size=PAGE_SIZE_MAX))
        names = [model.alias async for page in pages for model in page.models]
        if alias not in names:
            available = ", ".join(names[:NAMED_MAX]) or "none"
            message = f"There is no model {alias!r}{did_you_mean(alias, names)}. Available: {available}."
            raise fault(Reason.MODEL_NOT_FOUND, message, model=alias)


def _check_prompt(prompt: str) -> None:
    """Raises INVALID_FIELD for an empty prompt, LIMIT_EXCEEDED for one that is too long."""
    check_bytes("prompt", prompt, PROMPT_BYTES_MAX)
    if not prompt.strip():
        raise invalid("prompt", "The prompt is empty. Say what to do.")

"""What clients ask for: each use case in the order of its steps, durable first, then the worker is told.

Source: rows RU003, RU037-RU039, RU109, RU139, RU230-RU233; decisions C14, C36.
"""

from __future__ import annotations

from pathlib import PurePath

from turnwright.executor.v1 import executor_service_pb2 as pb
from turnwright.executor.v1 import task_pb2
from turnwright.types.v1 import project_pb2, settings_pb2

from turnwright_core.errors import Reason, fault
from turnwright_core.limits import PROMPT_BYTES_MAX
from turnwright_core.runs import Mode
from turnwright_executor.ports.address import RunAddress
from turnwright_executor.ports.registry import Registry
from turnwright_executor.ports.workspaces import Admits, Locate
from turnwright_executor.runs.scheduler import Scheduler
from turnwright_executor.watching.hubs import Hubs


class RunCommands:
    """The use cases behind InitProject, Ask, Act and Abort."""

    def __init__(self, registry: Registry, hubs: Hubs, scheduler: Scheduler, locate: Locate, admits: Admits) -> None:
        self._registry = registry
        self._hubs = hubs
        self._scheduler = scheduler
        self._locate = locate
        self._admits = admits

    async def init_project(
        self, root: str, name: str = "", config_path: str | None = None, *, is_trusted: bool = True
    ) -> project_pb2.Project:
        """Make a directory known. Raises PreconditionError when it is none.

        Raises DeniedError where the caller is not trusted with it; that says nothing of what there is.
        """
        if not is_trusted and PurePath(root).is_absolute():
            await self._check_root(root)
        workspace = await self._locate(root)
        # Looked at again: a link on the way may have changed meanwhile.
        if workspace and not is_trusted:
            await self._check_root(workspace.root)
        if workspace is None:
            raise fault(
                Reason.WORKSPACE_UNAVAILABLE,
                f"{root!r} is not a directory that this executor can see. Name an existing one by its absolute path.",
                project="",
                root=root,
            )
        project = await self._registry.init_project(workspace.root, workspace.id, name, config_path)
        project.copied_from = workspace.copied_from
        return project

    async def _check_root(self, root: str) -> None:
        if not await self._admits(root) and not await self._registry.has_root(root):
            raise fault(
                Reason.TIER_FORBIDDEN,
                f"{root!r} is not open to derived tokens: make it known with the deployment's secret, or name a folder "
                "above it in TURNWRIGHT_CLIENT_ROOTS of the executor.",
                tier="system",
                ceiling="client",
            )

    async def enqueue(self, task: task_pb2.Task, mode: Mode) -> task_pb2.QueuedTask:
        """Put a task into the queue of its run and start working."""
        check_prompt(task)
        task.settings.mode = settings_pb2.Mode.ValueType(int(mode))
        # An existing run is opened before the task is stored, so that its cursor precedes all that the task causes.
        if task.run and await self._registry.run_exists(RunAddress(task.project, task.run)):
            async with self._hubs.hold(RunAddress(task.project, task.run)) as hub:
                cursor = hub.cursor()
                queued = await self._registry.enqueue(task)
        else:
            queued = await self._registry.enqueue(task)
            address = RunAddress(task.project, queued.run.run)
            try:
                fresh = (queued.run, queued.cursor) if queued.created else None
                async with self._hubs.hold(address, fresh=fresh) as hub:
                    cursor = hub.cursor()
            except BaseException:
                # The task is stored: it is worked on, whoever still hears of it.
                self._scheduler.kick(address)
                raise
        self._scheduler.kick(RunAddress(task.project, queued.run.run))
        return task_pb2.QueuedTask(run=queued.run_pb, loop=queued.loop_pb, cursor=cursor)

    async def abort(self, request: pb.AbortRequest) -> pb.AbortResponse:
        address = RunAddress(request.project, request.run)
        async with self._hubs.hold(address) as hub:
            cursor = hub.cursor()
            run = await self._registry.request_abort(address, request.request_id)
        self._scheduler.abort(address, run.loop.sequence)
        return pb.AbortResponse(run=run, cursor=cursor)


def check_prompt(task: task_pb2.Task) -> None:
    """Raises INVALID_FIELD for a task that says nothing, LIMIT_EXCEEDED for one that says too much."""
    _check_bytes("prompt", task.prompt, PROMPT_BYTES_MAX)
    if not task.prompt.strip():
        raise fault(Reason.INVALID_FIELD, "The prompt is empty. Say what to do.", field="prompt")


def _check_bytes(field: str, text: str, limit: int) -> None:
    actual = len(text.encode())
    if actual > limit:
        raise fault(
            Reason.LIMIT_EXCEEDED,
            f"The {field} has {actual} bytes; at most {limit} are allowed.",
            field=field,
            limit=limit,
            actual=actual,
            unit="bytes",
        )

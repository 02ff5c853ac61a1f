"""Control of runs beside their work: what clients change, tell and follow.

What is stored is changed in the store, in one transaction each; the executor that works on the run, whichever it is,
finds it there. Only notices are not stored.
Source: rows RU117-RU120, RU226-RU232, RU238, RU240-RU246; decisions C13, C14, C31.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from turnwright.executor.v1 import control_pb2 as pb
from turnwright.executor.v1 import event_pb2, task_pb2, watch_pb2
from turnwright.store.v1 import control_pb2 as rows_pb2

from turnwright_core.errors import Reason, fault
from turnwright_core.limits import EVENT_BODY_BYTES_MAX, NAME_CHARS_MAX, NOTICE_BYTES_MAX
from turnwright_executor.ports.address import RunAddress
from turnwright_executor.watching import events
from turnwright_executor.watching.hubs import Hubs

LEVELS = ("info", "warning", "error")
"""How much a notice may matter."""


class ControlRows(Protocol):
    """The rows behind control. Every method raises TurnwrightError."""

    async def fork_run(self, request: pb.ForkRunRequest) -> pb.ForkRunResponse:
        """Make a run that begins with what another one sees."""
        ...

    async def rename_run(self, request: pb.RenameRunRequest) -> pb.RenameRunResponse:
        """Give a run another alias."""
        ...

    async def remove_run(self, request: pb.RemoveRunRequest) -> pb.RemoveRunResponse:
        """Remove a run."""
        ...

    async def configure_run(self, request: pb.ConfigureRunRequest) -> pb.ConfigureRunResponse:
        """Change settings."""
        ...

    async def inject_message(self, request: pb.InjectMessageRequest) -> rows_pb2.InjectMessageResponse:
        """Add a message to a run."""
        ...

    async def list_entries(self, request: pb.ListEntriesRequest) -> pb.ListEntriesResponse:
        """Entries by patterns."""
        ...

    async def check_model(self, alias: str) -> None:
        """Raises MODEL_NOT_FOUND where there is no such model."""
        ...

    async def add_model(self, request: pb.AddModelRequest) -> pb.AddModelResponse:
        """Add or replace a model."""
        ...

    async def remove_model(self, request: pb.RemoveModelRequest) -> pb.RemoveModelResponse:
        """Remove a model."""
        ...

    async def set_file_constraints(self, request: pb.SetFileConstraintsRequest) -> pb.SetFileConstraintsResponse:
        """Change what a project says of its files."""
        ...

    async def list_file_constraints(self, request: pb.ListFileConstraintsRequest) -> pb.ListFileConstraintsResponse:
        """What a project says of its files."""
        ...

    def watch_runs(self, project: str) -> AsyncGenerator[rows_pb2.WatchRunsResponse]:
        """The runs of a project as they change, until the caller ends it."""
        ...


class Control:
    """The use cases of control that need more than rows."""

    def __init__(self, rows: ControlRows, hubs: Hubs) -> None:
        """Work with these rows; tell those who watch the hubs."""
        self.rows = rows
        self._hubs = hubs

    async def inject(self, request: pb.InjectMessageRequest) -> pb.InjectMessageResponse:
        """Tell the model something in its next turn; the answer has the status that the run is at (RU251)."""
        async with self._hubs.hold(RunAddress(request.project, request.run)) as hub:
            cursor = hub.cursor()
            told = await self.rows.inject_message(request)
        return pb.InjectMessageResponse(run=told.run, path=told.path, cursor=cursor)

    async def fork_for(self, task: task_pb2.Task) -> task_pb2.Task:
        """The task, given to a fork of its run where it asks for one. Repeating it finds the same fork.

        Raises TurnwrightError; a model that there is not leaves no fork behind.
        """
        if not task.HasField("fork"):
            return task
        if task.settings.model:
            await self.rows.check_model(task.settings.model)
        request = pb.ForkRunRequest(
            project=task.project, run=task.run, new_run=task.fork.run, turn=task.fork.turn, request_id=task.request_id
        )
        fork = await self.rows.fork_run(request)
        task.run = fork.run.run
        task.ClearField("fork")
        return task

    async def notify(self, request: watch_pb2.NotifyRequest) -> None:
        """Tell the watchers of a run something that is not stored."""
        message = _notification(request)
        async with self._hubs.hold(RunAddress(request.project, request.run)) as hub:
            hub.publish(events.told(message))


def _notification(request: watch_pb2.NotifyRequest) -> event_pb2.Notice | event_pb2.Rendering:
    match request.WhichOneof("message"):
        case "notice":
            return _checked_notice(request.notice)
        case "rendering":
            _check_bytes("rendering.text", request.rendering.text, EVENT_BODY_BYTES_MAX)
            _check_chars("rendering.id", request.rendering.id)
            return request.rendering
        case _:
            raise fault(Reason.INVALID_FIELD, "Say what to tell: a notice or a rendering.", field="message")


def _checked_notice(notice: event_pb2.Notice) -> event_pb2.Notice:
    if not notice.text.strip():
        raise fault(Reason.INVALID_FIELD, "The notice has no text.", field="notice.text")
    _check_bytes("notice.text", notice.text, NOTICE_BYTES_MAX)
    _check_chars("notice.source", notice.source)
    notice.level = notice.level or LEVELS[0]
    if notice.level not in LEVELS:
        message = f"A notice is of the level {', '.join(LEVELS)}; not {notice.level!r}."
        raise fault(Reason.INVALID_FIELD, message, field="notice.level")
    return notice


def _check_bytes(field: str, text: str, limit: int) -> None:
    _check(field, len(text.encode()), limit, "bytes")


def _check_chars(field: str, text: str) -> None:
    _check(field, len(text), NAME_CHARS_MAX, "characters")


def _check(field: str, actual: int, limit: int, unit: str) -> None:
    if actual > limit:
        message = f"{field} has {actual} {unit}; the limit is {limit}."
        raise fault(Reason.LIMIT_EXCEEDED, message, field=field, limit=limit, actual=actual, unit=unit)

"""What clients ask of projects, runs and queues."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct
from turnwright.executor.v1 import task_pb2
from turnwright.types.v1 import loop_pb2, project_pb2, run_pb2

from turnwright_core.entries import Cursor
from turnwright_core.runs import Run
from turnwright_executor.ports.address import RunAddress


class Queued(Struct, frozen=True):
    """A task that is in its run's queue: the run and the loop as the contract has them, and whether the run is new."""

    run: Run
    run_pb: run_pb2.Run
    loop_pb: loop_pb2.Loop
    cursor: Cursor
    created: bool


class Registry(Protocol):
    """The rows that clients address through the executor. Every method raises TurnwrightError."""

    async def init_project(
        self, root: str, workspace_id: str, name: str, config_path: str | None
    ) -> project_pb2.Project:
        """Register a project, or find the one of the workspace; its settings' file stays where None is given."""
        ...

    async def has_root(self, root: str) -> bool:
        """Whether a project stands at a directory, wherever its links lead."""
        ...

    async def run_exists(self, address: RunAddress) -> bool:
        """Whether there is such a run."""
        ...

    async def enqueue(self, task: task_pb2.Task) -> Queued:
        """Put a task into its run's queue."""
        ...

    async def request_abort(self, address: RunAddress, request_id: str) -> run_pb2.Run:
        """Mark that the active loop shall end."""
        ...

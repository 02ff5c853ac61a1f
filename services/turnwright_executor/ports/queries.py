"""What clients read."""

from __future__ import annotations

from typing import Protocol

from turnwright.executor.v1 import executor_service_pb2, query_pb2
from turnwright.types.v1 import run_pb2


class Queries(Protocol):
    """What clients read through the executor, in the words of the contract. Every method raises TurnwrightError."""

    async def get_run(self, request: query_pb2.GetRunRequest) -> query_pb2.GetRunResponse:
        """A run with its loops and turns."""
        ...

    async def list_runs(self, request: query_pb2.ListRunsRequest) -> query_pb2.ListRunsResponse:
        """The runs of a project."""
        ...

    async def get_entry(self, request: query_pb2.GetEntryRequest) -> query_pb2.GetEntryResponse:
        """One entry with its whole body."""
        ...

    async def list_models(self, request: query_pb2.ListModelsRequest) -> query_pb2.ListModelsResponse:
        """The models."""
        ...

    async def get_status(self, request: query_pb2.GetStatusRequest) -> query_pb2.GetStatusResponse:
        """How this executor and the services behind it are."""
        ...

    async def create_run(self, request: executor_service_pb2.StartRunRequest) -> run_pb2.Run:
        """A new run without work."""
        ...

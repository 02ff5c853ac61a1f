"""What clients decide: proposals and questions, across runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Protocol

from msgspec import Struct, field
from turnwright.executor.v1 import proposal_pb2
from turnwright.types.v1 import run_pb2

from turnwright_core.kit.auth import Caller
from turnwright_executor.ports.address import RunAddress


class Ruling(Struct, frozen=True):
    """A decision on a proposal. `comment` is also the answer to a question; `contents` are texts by path."""

    accept: bool
    comment: str = ""
    contents: Mapping[str, str] = field(default_factory=dict)
    client_runs: bool = False
    """Whether who decides runs the command."""


class Inbox(Protocol):
    """What waits for a decision, across runs. Every method raises TurnwrightError."""

    async def resolve(
        self, address: RunAddress, path: str, ruling: Ruling, request_id: str, caller: Caller
    ) -> run_pb2.Run:
        """Record a decision, in the name of the caller."""
        ...

    async def list(self, request: proposal_pb2.ListProposalsRequest) -> proposal_pb2.ListProposalsResponse:
        """A page of what waits."""
        ...

    def watch(
        self, request: proposal_pb2.WatchProposalsRequest
    ) -> AsyncGenerator[proposal_pb2.WatchProposalsResponse, None]:
        """What waits, and what waits no more, until the caller ends it."""
        ...

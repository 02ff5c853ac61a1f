"""Decisions on proposals, and the inbox."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from turnwright.executor.v1 import executor_service_pb2 as pb
from turnwright.executor.v1 import proposal_pb2

from turnwright_core.kit.auth import current_caller
from turnwright_executor.clients.decisions import Decisions


class ProposalRpcs:
    """Resolve, and the rpcs of proposal.proto."""

    _decisions: Decisions

    async def Resolve(self, request: pb.ResolveRequest, context: Any) -> pb.ResolveResponse:
        """Decide on a proposal."""
        return await self._decisions.resolve(request, current_caller())

    async def GetProposal(
        self, request: proposal_pb2.GetProposalRequest, context: Any
    ) -> proposal_pb2.GetProposalResponse:
        """Read a proposal with all that it would write."""
        return await self._decisions.get(request)

    async def ListProposals(
        self, request: proposal_pb2.ListProposalsRequest, context: Any
    ) -> proposal_pb2.ListProposalsResponse:
        """List what waits for a decision."""
        return await self._decisions.list(request)

    async def WatchProposals(
        self, request: proposal_pb2.WatchProposalsRequest, context: Any
    ) -> AsyncIterator[proposal_pb2.WatchProposalsResponse]:
        """Stream what waits for a decision."""
        changes = self._decisions.watch(request)
        async with contextlib.aclosing(changes):
            async for change in changes:
                yield change

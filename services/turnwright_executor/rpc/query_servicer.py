"""Read-only rpcs: packets explained, and the status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from turnwright.executor.v1 import executor_service_pb2_grpc, explain_pb2, query_pb2, tools_pb2

from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.rpc.forwarding import check_seen
from turnwright_kit.peer import Peer


class QueryRpcs:
    """Read-only rpcs. They are made in the executor's name: whoever may call them may read."""

    store: Peer

    _status: Callable[[query_pb2.GetStatusRequest], Awaitable[query_pb2.GetStatusResponse]]

    _explain: Callable[[explain_pb2.ExplainPacketRequest], Awaitable[explain_pb2.ExplainPacketResponse]]

    _list_tools: Callable[[tools_pb2.ListToolsRequest], Awaitable[tools_pb2.ListToolsResponse]]

    async def check_seen(self, request: Any) -> None:
        """Refuse what is done here with a run that is not there for the caller. Raises RUN_NOT_FOUND."""
        await check_seen(self.store, RunAddress(request.project, request.run))

    async def ListTools(self, request: tools_pb2.ListToolsRequest, context: Any) -> tools_pb2.ListToolsResponse:
        return await self._list_tools(request)

    async def ExplainPacket(
        self, request: explain_pb2.ExplainPacketRequest, context: Any
    ) -> explain_pb2.ExplainPacketResponse:
        await self.check_seen(request)
        return await self._explain(request)

    async def GetStatus(self, request: query_pb2.GetStatusRequest, context: Any) -> query_pb2.GetStatusResponse:
        return await self._status(request)


class ReadingServicer(
    QueryRpcs,
    executor_service_pb2_grpc.ExecutorServiceServicer,
):
    """Answers from the store alone, and from an assembler and a provider where there are."""

    def __init__(
        self,
        store: Peer,
        explain: Callable[[explain_pb2.ExplainPacketRequest], Awaitable[explain_pb2.ExplainPacketResponse]] | None,
        status: Callable[[query_pb2.GetStatusRequest], Awaitable[query_pb2.GetStatusResponse]],
    ) -> None:
        self.store, self._status = store, status
        if explain:
            self._explain = explain

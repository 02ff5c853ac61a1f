"""Read-only rpcs: runs from the store, packets explained, and the status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from turnwright.executor.v1 import explain_pb2, query_pb2
from turnwright.store.v1 import registry_pb2

from turnwright_executor.rpc.forwarding import Forwarding


class QueryRpcs(Forwarding):
    """Read-only rpcs. They are made in the executor's name: whoever may call them may read."""

    _read_run: Callable[[query_pb2.GetRunRequest], Awaitable[query_pb2.GetRunResponse]]
    _status: Callable[[query_pb2.GetStatusRequest], Awaitable[query_pb2.GetStatusResponse]]

    _explain: Callable[[explain_pb2.ExplainPacketRequest], Awaitable[explain_pb2.ExplainPacketResponse]]
    _preview: Callable[[explain_pb2.PreviewPacketRequest], Awaitable[explain_pb2.PreviewPacketResponse]]

    async def ListRuns(self, request: query_pb2.ListRunsRequest, context: Any) -> query_pb2.ListRunsResponse:
        wanted = registry_pb2.ListRunsRequest(
            project=request.project, page_size=request.page_size, page_token=request.page_token
        )
        page = await self.store.call(self.rows.ListRuns, wanted)
        return query_pb2.ListRunsResponse(runs=page.runs, next_page_token=page.next_page_token)

    async def GetRun(self, request: query_pb2.GetRunRequest, context: Any) -> query_pb2.GetRunResponse:
        return await self._read_run(request)

    async def ExplainPacket(
        self, request: explain_pb2.ExplainPacketRequest, context: Any
    ) -> explain_pb2.ExplainPacketResponse:
        return await self._explain(request)

    async def PreviewPacket(
        self, request: explain_pb2.PreviewPacketRequest, context: Any
    ) -> explain_pb2.PreviewPacketResponse:
        return await self._preview(request)

    async def GetStatus(self, request: query_pb2.GetStatusRequest, context: Any) -> query_pb2.GetStatusResponse:
        return await self._status(request)

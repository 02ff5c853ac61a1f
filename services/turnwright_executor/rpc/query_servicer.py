"""Read-only rpcs: runs and entries from the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from turnwright.executor.v1 import control_pb2 as pb
from turnwright.executor.v1 import explain_pb2, query_pb2
from turnwright.store.v1 import read_pb2, registry_pb2

from turnwright_core.errors import Reason, fault
from turnwright_core.limits import PAGE_BYTES_MAX
from turnwright_core.wire.entries import cut_body
from turnwright_executor.rpc.forwarding import CallIdentity, Forward, Forwarding, copy_fields

_read = partial(Forward, identity=CallIdentity.EXECUTOR)


class QueryRpcs(Forwarding):
    """Read-only rpcs. They are made in the executor's name: whoever may call them may read."""

    _read_run: Callable[[query_pb2.GetRunRequest], Awaitable[query_pb2.GetRunResponse]]
    _status: Callable[[query_pb2.GetStatusRequest], Awaitable[query_pb2.GetStatusResponse]]

    _explain: Callable[[explain_pb2.ExplainPacketRequest], Awaitable[explain_pb2.ExplainPacketResponse]]
    _preview: Callable[[explain_pb2.PreviewPacketRequest], Awaitable[explain_pb2.PreviewPacketResponse]]

    ListRuns = _read()

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

    async def GetEntry(self, request: query_pb2.GetEntryRequest, context: Any) -> query_pb2.GetEntryResponse:
        """Read an entry, with as much of its body as fits into a message."""
        wanted = read_pb2.GetEntriesRequest(project=request.project, run=request.run, paths=[request.path])
        found = await self.store.call(self.rows.GetEntries, wanted)
        if not found.entries:
            message = f"The run {request.run} has no entry {request.path}."
            raise fault(Reason.ENTRY_NOT_FOUND, message, path=request.path)
        entry = found.entries[0]
        begin = cut_body(entry, request.body_offset, min(request.body_bytes_max or PAGE_BYTES_MAX, PAGE_BYTES_MAX))
        return query_pb2.GetEntryResponse(entry=entry, body_offset=begin)

    async def ListEntries(self, request: pb.ListEntriesRequest, context: Any) -> pb.ListEntriesResponse:
        """Entries by patterns; of the most recently written run if none is named."""
        wanted = copy_fields(request, read_pb2.ListEntriesRequest)
        wanted.run = wanted.run or await self._latest_run(request.project)
        page = await self.store.call(self.rows.ListEntries, wanted)
        for entry in page.entries:
            cut_body(entry, 0, PAGE_BYTES_MAX)
        return copy_fields(page, pb.ListEntriesResponse)

    async def _latest_run(self, project: str) -> str:
        page = await self.store.call(self.rows.ListRuns, registry_pb2.ListRunsRequest(project=project, page_size=1))
        if not page.runs:
            raise fault(Reason.RUN_NOT_FOUND, f"There is no run in {project} yet.", project=project, run="")
        return page.runs[0].run

"""Rpcs of DocumentService."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from turnwright.documents.v1 import document_service_pb2 as pb
from turnwright.documents.v1 import document_service_pb2_grpc

from turnwright_core.wire.runs import run_to_pb
from turnwright_kit.identity.caller import Caller, current_caller
from turnwright_store.app.export_run import Export
from turnwright_store.app.import_run import Import
from turnwright_store.app.registry import with_origin
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, address_of


class DocumentServicer(Calls, document_service_pb2_grpc.DocumentServiceServicer):
    """Serves turnwright.documents.v1.DocumentService."""

    async def ExportRun(self, request: pb.ExportRunRequest, _context: Any) -> AsyncIterator[pb.ExportRunResponse]:
        export = Export(self._database, self._rules, address_of(request), files=not request.without_files)
        before = b""
        async with aclosing(export.chunks()) as chunks:
            async for chunk in chunks:
                if before:
                    yield pb.ExportRunResponse(data=before)
                before = chunk
        yield pb.ExportRunResponse(data=before, last=True)

    async def ImportRun(self, requests: AsyncIterator[pb.ImportRunRequest], _context: Any) -> pb.ImportRunResponse:
        first = await anext(requests)
        document = Import(self._database, self._rules, current_caller(), first)
        async with aclosing(_parts(first, requests)) as parts:
            await document.read(parts)

        def end(tx: Transaction, _caller: Caller) -> pb.ImportRunResponse:
            answer = pb.ImportRunResponse(
                problems=[pb.ImportProblem(place=place, problem=problem) for place, problem in document.problems],
                skipped=document.skipped,
            )
            if first.staged:
                answer.staged_id, expire_ms = document.stage(tx)
                answer.expire_time.FromMilliseconds(expire_ms)
            else:
                answer.run.CopyFrom(run_to_pb(with_origin(tx.connection, document.show(tx))))
            return answer

        asked = pb.ImportRunRequest()
        asked.CopyFrom(first)
        asked.ClearField("data")
        return await self._once(asked, pb.ImportRunResponse, end, locks=document.locks())


async def _parts(first: pb.ImportRunRequest, requests: AsyncIterator[pb.ImportRunRequest]) -> AsyncGenerator[bytes]:
    yield first.data
    async for request in requests:
        yield request.data

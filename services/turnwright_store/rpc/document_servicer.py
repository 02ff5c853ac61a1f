"""Rpcs of DocumentService."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from turnwright.documents.v1 import document_service_pb2 as pb
from turnwright.documents.v1 import document_service_pb2_grpc

from turnwright_store.app.export_run import Export
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

"""Rpcs that search by words."""

from __future__ import annotations

from functools import partial
from typing import Any

from turnwright.store.v1 import read_pb2

from turnwright_store.app.search import search_entries
from turnwright_store.rpc.calls import Calls


class SearchRpcs(Calls):
    """Rpcs that search by words."""

    async def SearchEntries(
        self, request: read_pb2.SearchEntriesRequest, _context: Any
    ) -> read_pb2.SearchEntriesResponse:
        """See StoreService."""
        query = partial(
            search_entries,
            project=request.project,
            query=request.query,
            schemes=list(request.schemes),
            limit=request.limit,
        )
        found = await self._database.read(query)
        return read_pb2.SearchEntriesResponse(
            hits=[
                read_pb2.SearchHit(path=hit.path, revision=hit.revision, score=hit.score, snippet=text)
                for hit, text in found.hits
            ],
            indexed_revision=found.indexed_revision,
            revision=found.revision,
        )

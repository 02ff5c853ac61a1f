"""Rpcs that search by words."""

from __future__ import annotations

from turnwright.store.v1 import read_pb2

from turnwright_store.app.search import search_entries
from turnwright_store.ports import Connection
from turnwright_store.rpc.calls import Calls, query


class SearchRpcs(Calls):
    """Rpcs that search by words."""

    @query
    def SearchEntries(
        self, request: read_pb2.SearchEntriesRequest, connection: Connection
    ) -> read_pb2.SearchEntriesResponse:
        found = search_entries(connection, request.project, request.query, list(request.schemes), request.limit)
        return read_pb2.SearchEntriesResponse(
            hits=[
                read_pb2.SearchHit(path=hit.path, revision=hit.revision, score=hit.score, snippet=text)
                for hit, text in found.hits
            ],
            indexed_revision=found.indexed_revision,
            revision=found.revision,
        )

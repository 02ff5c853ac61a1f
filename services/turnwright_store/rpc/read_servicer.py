"""Reading and following a run's view."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from turnwright.store.v1 import read_pb2

from turnwright_core.wire import entries as entry_wire
from turnwright_core.wire import runs as wire
from turnwright_core.wire.times import time_to_pb
from turnwright_store.app import reading
from turnwright_store.app.changes import Change
from turnwright_store.app.reading import Address, Query
from turnwright_store.domain.checks import invalid
from turnwright_store.rpc.calls import Calls, after_of
from turnwright_store.sql.views import ViewFilter, Wanted


def filter_of(value: int) -> ViewFilter:
    """The filter that a request asks for; ALL where it does not say."""
    try:
        return ViewFilter(value or ViewFilter.ALL)
    except ValueError:
        raise invalid("filter", f"{value} is no filter.") from None


class ReadRpcs(Calls):
    """Rpcs of read.proto."""

    async def ReadView(
        self, request: read_pb2.ReadViewRequest, _context: Any
    ) -> AsyncIterator[read_pb2.ReadViewResponse]:
        """See StoreService."""
        wanted = Wanted(
            filter_of(request.filter),
            tuple(request.include_paths),
            bodies=not request.without_bodies,
            body_bytes_max=request.body_bytes_max,
        )
        address = Address(request.project, request.run)
        async for part in reading.read_view(self._database, self._basis, address, after_of(request), wanted):
            yield read_pb2.ReadViewResponse(
                entries=map(entry_wire.entry_to_pb, part.entries),
                removed_paths=part.removed,
                cursor=entry_wire.cursor_to_pb(part.cursor) if part.cursor else None,
            )

    async def GetEntries(self, request: read_pb2.GetEntriesRequest, _context: Any) -> read_pb2.GetEntriesResponse:
        """See StoreService."""
        query = partial(
            reading.get_entries,
            address=Address(request.project, request.run),
            paths=list(request.paths),
            bodies=not request.without_bodies,
        )
        found = await self._database.read(query)
        return read_pb2.GetEntriesResponse(entries=map(entry_wire.entry_to_pb, found))

    async def ListEntries(self, request: read_pb2.ListEntriesRequest, _context: Any) -> read_pb2.ListEntriesResponse:
        """See StoreService."""
        query = partial(
            reading.list_entries,
            address=Address(request.project, request.run),
            query=Query(
                request.pattern, request.body_pattern, not request.without_bodies, request.page_size, request.page_token
            ),
            check_time=reading.time_limit(self._service.clock_s, self._basis.pattern_s_max),
        )
        found, token = await self._database.read(query)
        return read_pb2.ListEntriesResponse(entries=map(entry_wire.entry_to_pb, found), next_page_token=token)

    async def WatchChanges(
        self, request: read_pb2.WatchChangesRequest, _context: Any
    ) -> AsyncIterator[read_pb2.WatchChangesResponse]:
        """See StoreService."""
        wanted = Wanted(filter_of(request.filter), body_bytes_max=request.body_bytes_max)
        address = Address(request.project, request.run)
        changes = self._service.watches.changes(self._database, self._basis, address, after_of(request), wanted)
        try:
            async for change in changes:
                yield self._change_to_pb(change)
        finally:
            await changes.aclose()

    def _change_to_pb(self, change: Change) -> read_pb2.WatchChangesResponse:
        return read_pb2.WatchChangesResponse(
            entries=map(entry_wire.entry_to_pb, change.entries),
            removed_paths=change.removed,
            run=wire.run_to_pb(change.run) if change.run else None,
            loops=map(wire.loop_to_pb, change.loops),
            turns=map(wire.turn_to_pb, change.turns),
            cursor=entry_wire.cursor_to_pb(change.cursor),
            send_time=time_to_pb(self._service.clock_ms()),
        )

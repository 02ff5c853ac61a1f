"""Reading, searching and following a run's view."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from msgspec.structs import replace
from turnwright.store.v1 import read_pb2
from turnwright_values.store import WatchChangesRequest, WatchChangesResponse
from turnwright_values.types import ViewFilter

from turnwright_core.checks import invalid
from turnwright_core.wire import entries as entry_wire
from turnwright_store.app.changes import ChangesWatch, watch_changes
from turnwright_store.app.history import At, PacketMoment
from turnwright_store.app.list_entries import PathsQuery, get_entries
from turnwright_store.app.read_view import check_wanted, read_view
from turnwright_store.app.store_rules import newer_schemes
from turnwright_store.rpc.calls import Calls, address_of, after_cursor, watch
from turnwright_store.sql.views import Wanted


def filter_of(value: int) -> ViewFilter:
    """The filter that a request asks for; ALL where it does not say."""
    try:
        return ViewFilter(value or ViewFilter.ALL)
    except ValueError:
        raise invalid("filter", f"{value} is not a filter.") from None


def watched(call: WatchChangesRequest) -> Wanted:
    """What a watch wants to be told. Raises LIMIT_EXCEEDED."""
    wanted = Wanted(filter_of(call.filter), body_bytes_max=call.body_bytes_max, whole=tuple(call.whole_schemes))
    check_wanted(wanted, None, None)
    return wanted


def at_of(request: Any) -> At | None:
    """The moment that a request asks for; None: now."""
    if not request.HasField("at"):
        return None
    match request.at.WhichOneof("at"):
        case "turn":
            return int(request.at.turn)
        case "packet_of_turn":
            return PacketMoment(request.at.packet_of_turn)
        case "cursor":
            return entry_wire.cursor_from_pb(request.at.cursor)
    raise invalid("at", "Set `cursor`, `turn` or `packet_of_turn` of the moment.")


class ReadRpcs(Calls):
    """Rpcs of read.proto."""

    async def ReadView(
        self, request: read_pb2.ReadViewRequest, _context: Any
    ) -> AsyncIterator[read_pb2.ReadViewResponse]:
        wanted = Wanted(
            filter_of(request.filter),
            tuple(request.include_paths),
            bodies=not request.without_bodies,
            body_bytes_max=request.body_bytes_max,
            whole=tuple(request.whole_schemes),
        )
        address = address_of(request)
        rules = self._rules
        schemes = newer_schemes(rules, request.schemes_version)
        parts = read_view(self._database, rules, address, after_cursor(request), wanted, at_of(request))
        async for part in parts:
            yield read_pb2.ReadViewResponse(
                entries=map(entry_wire.entry_to_pb, part.entries),
                removed_paths=part.removed,
                cursor=entry_wire.cursor_to_pb(part.cursor) if part.cursor else None,
                schemes=schemes,
            )
            schemes = None

    async def GetEntries(self, request: read_pb2.GetEntriesRequest, _context: Any) -> read_pb2.GetEntriesResponse:
        query = PathsQuery(tuple(request.paths), not request.without_bodies, at_of(request))
        address = address_of(request)
        read = partial(get_entries, rules=self._rules, address=address, query=query)
        got = await self._database.read(read)
        return read_pb2.GetEntriesResponse(entries=map(entry_wire.entry_to_pb, got))

    def _stamped(self, change: WatchChangesResponse) -> WatchChangesResponse:
        return replace(change, send_ms=self._service.clock_ms())

    @watch(_stamped)
    async def WatchChanges(self, call: WatchChangesRequest) -> ChangesWatch:
        wanted, address = watched(call), address_of(call)
        return await watch_changes(
            self._database, lambda: self._rules, address, call.after, wanted, with_plans=call.with_plans
        )

"""Rpcs of EntryService."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from sqlalchemy import Connection
from turnwright.entries.v1 import entry_service_pb2 as pb
from turnwright.entries.v1 import entry_service_pb2_grpc
from turnwright.types.v1 import entry_pb2
from turnwright_values.types import Entry, State, Visibility

from turnwright_core.checks import invalid
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import PAGE_BYTES_MAX
from turnwright_core.wire.entries import entry_to_pb, hit_to_pb
from turnwright_core.wire.schemes import categories_from_pb
from turnwright_core.wire.times import time_to_pb
from turnwright_store.app.list_entries import EntryQuery, list_entries, list_entry_history, read_entry, time_limit
from turnwright_store.app.search import search_entries
from turnwright_store.rpc.calls import Calls, Fields, address_of, query
from turnwright_store.rpc.read_servicer import at_of
from turnwright_store.sql.history import Interval

E = TypeVar("E", Visibility, State)


class EntryServicer(Calls, entry_service_pb2_grpc.EntryServiceServicer):
    """Serves turnwright.entries.v1.EntryService."""

    @query
    def GetEntry(self, request: pb.GetEntryRequest, connection: Connection) -> Fields:
        size = min(request.body_bytes_max or PAGE_BYTES_MAX, PAGE_BYTES_MAX)
        found = read_entry(connection, self._rules, address_of(request), request.path, request.body_offset, size)
        if found is None:
            raise fault(Reason.ENTRY_NOT_FOUND, f"There is no entry {request.path}.", path=request.path)
        entry, begin = found
        return {"entry": entry_to_pb(entry), "body_offset": begin}

    @query
    def ListEntries(self, request: pb.ListEntriesRequest, connection: Connection) -> Fields:
        rules, wanted = self._rules, _query_of(request)
        check_time = time_limit(rules.pattern_s_max)
        found, token = list_entries(connection, rules, address_of(request), wanted, check_time)
        return {"entries": map(entry_to_pb, found), "next_page_token": token}

    @query
    def ListEntryHistory(self, request: pb.ListEntryHistoryRequest, connection: Connection) -> Fields:
        found, token = list_entry_history(
            connection,
            address_of(request),
            request.path,
            request.page_size,
            request.page_token,
            bodies=not request.without_bodies,
        )
        return {"intervals": [_interval_to_pb(*one) for one in found], "next_page_token": token}

    @query
    def SearchEntries(self, request: pb.SearchEntriesRequest, connection: Connection) -> Fields:
        found = search_entries(connection, request.project, request.query, list(request.schemes), request.limit)
        return {
            "hits": map(hit_to_pb, found.hits),
            "indexed_revision": found.indexed_revision,
            "revision": found.revision,
        }


def _query_of(request: pb.ListEntriesRequest) -> EntryQuery:
    return EntryQuery(
        pattern=request.pattern,
        body_pattern=request.body_pattern,
        bodies=not request.without_bodies,
        size=request.page_size,
        token=request.page_token,
        schemes=frozenset(request.schemes),
        categories=categories_from_pb(request.categories),
        visibilities=_chosen("visibilities", Visibility, request.visibilities),
        states=_chosen("states", State, request.states),
        at=at_of(request),
        by_position=request.by_position,
    )


def _chosen(field: str, kind: type[E], values: Iterable[int]) -> frozenset[E]:
    """The members of an enum that a request names. Raises INVALID_FIELD."""
    try:
        found = frozenset(map(kind, values))
    except ValueError:
        found = frozenset({kind(0)})
    if kind(0) in found:
        raise invalid(field, f"{field} names what every entry has or none can have.")
    return found


def _interval_to_pb(entry: Entry, interval: Interval) -> entry_pb2.EntryInterval:
    shown = interval.shown
    return entry_pb2.EntryInterval(
        entry=entry_to_pb(entry),
        end_revision=interval.to_rev or 0,
        create_time=time_to_pb(shown.view_ms),
        appended_bytes=shown.chunk_bytes,
    )

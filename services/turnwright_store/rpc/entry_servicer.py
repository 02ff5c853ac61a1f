"""Rpcs of EntryService."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from sqlalchemy import Connection
from turnwright.entries.v1 import entry_service_pb2 as pb
from turnwright.entries.v1 import entry_service_pb2_grpc
from turnwright_values.types import State, Visibility

from turnwright_core.checks import invalid, over_limit
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.limits import PAGE_BYTES_MAX
from turnwright_core.wire.entries import entry_to_pb
from turnwright_core.wire.schemes import categories_from_pb
from turnwright_store.app.list_entries import EntryQuery, list_entries, list_entry_history, time_limit
from turnwright_store.app.read_entries import PathsQuery, get_entries
from turnwright_store.app.search import search_entries
from turnwright_store.rpc.calls import Calls, Fields, address_of, query
from turnwright_store.rpc.read_servicer import at_of
from turnwright_store.sql.runs import get_run_head
from turnwright_store.sql.streams import read_part
from turnwright_store.sql.views import find_entry_row

E = TypeVar("E", Visibility, State)

PART_BYTES: Final = 64 * 1024
"""Bytes of a body that are read where the request does not say."""

PART_BYTES_MAX: Final = 1024 * 1024
"""Most bytes of a body that are read at once."""


class EntryServicer(Calls, entry_service_pb2_grpc.EntryServiceServicer):
    """Serves turnwright.entries.v1.EntryService."""

    @query
    def GetEntry(self, request: pb.GetEntryRequest, connection: Connection) -> Fields:
        found = get_entries(connection, self._rules, address_of(request), PathsQuery((request.path,)))
        if not found:
            raise _missing(request.path)
        entry = entry_to_pb(found[0].entry)
        data, size = entry.body.encode(), min(request.body_bytes_max or PAGE_BYTES_MAX, PAGE_BYTES_MAX)
        begin = max(0, min(request.body_offset, len(data)))
        while begin and _is_inside(data[begin : begin + 1]):
            begin -= 1
        entry.body = data[begin : begin + size].decode(errors="ignore")
        return {"entry": entry, "body_offset": begin}

    @query
    def ListEntries(self, request: pb.ListEntriesRequest, connection: Connection) -> Fields:
        rules, wanted = self._rules, _query_of(request)
        check_time = time_limit(self._service.clock_s, rules.pattern_s_max)
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
        intervals = [pb.EntryInterval(entry=entry_to_pb(one.entry), to_revision=one.to_revision) for one in found]
        return {"intervals": intervals, "next_page_token": token}

    @query
    def SearchEntries(self, request: pb.SearchEntriesRequest, connection: Connection) -> Fields:
        found = search_entries(connection, request.project, request.query, list(request.schemes), request.limit)
        return {
            "hits": [
                pb.SearchHit(path=hit.path, revision=hit.revision, score=hit.score, snippet=text)
                for hit, text in found.hits
            ],
            "indexed_revision": found.indexed_revision,
            "revision": found.revision,
        }

    @query
    def ReadEntryBody(self, request: pb.ReadEntryBodyRequest, connection: Connection) -> Fields:
        """A part of a body, cut at characters: from an offset on, or the last one."""
        if request.bytes_max > PART_BYTES_MAX:
            raise over_limit("bytes_max", PART_BYTES_MAX, request.bytes_max, "bytes")
        if request.HasField("offset") and request.offset < 0:
            raise invalid("offset", f"offset must be 0 or more bytes; it is {request.offset}.")
        run = get_run_head(connection, request.project, request.run)
        shown = find_entry_row(connection, run.id, request.path)
        if shown is None:
            raise _missing(request.path)
        size, total = request.bytes_max or PART_BYTES, shown.body_size_bytes
        begin = min(request.offset, total) if request.HasField("offset") else max(0, total - size)
        data = read_part(connection, shown, begin, min(begin + size, total))
        text = data.decode(errors="ignore")
        while _is_inside(data[:1]):
            begin, data = begin + 1, data[1:]
        return {"text": text, "offset": begin, "body_size_bytes": total}


def _missing(path: str) -> TurnwrightError:
    return fault(Reason.ENTRY_NOT_FOUND, f"There is no entry {path}.", path=path)


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


def _is_inside(byte: bytes) -> bool:
    """Whether a byte of UTF-8 continues a character."""
    return bool(byte) and byte[0] & 0b1100_0000 == 0b1000_0000

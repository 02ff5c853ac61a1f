"""Reading, searching and following a run's view."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from msgspec.structs import replace
from turnwright.store.v1 import read_pb2, stream_pb2

from turnwright_core.checks import invalid, over_limit
from turnwright_core.entries import State, Visibility
from turnwright_core.errors import Reason, fault
from turnwright_core.owner_calls import RunChanges, WatchChangesCall
from turnwright_core.text import LineSlice
from turnwright_core.wire import entries as entry_wire
from turnwright_store.app.changes import ChangesWatch, watch_changes
from turnwright_store.app.history import At, PacketMoment
from turnwright_store.app.list_entries import EntryQuery, list_entries, list_entry_history, time_limit
from turnwright_store.app.read_entries import LineRange, PathsQuery, get_entries
from turnwright_store.app.read_view import check_wanted, read_view
from turnwright_store.app.search import search_entries
from turnwright_store.ports import Connection
from turnwright_store.rpc.calls import Calls, Fields, address_of, after_cursor, query, watch
from turnwright_store.sql.runs import get_run_head
from turnwright_store.sql.streams import read_part
from turnwright_store.sql.views import ViewFilter, Wanted, find_entry_row

E = TypeVar("E", Visibility, State)

PART_BYTES: Final = 64 * 1024
"""Bytes of a body that are read where the request does not say."""

PART_BYTES_MAX: Final = 1024 * 1024
"""Most bytes of a body that are read at once."""

INLINE_PATHS_MAX: Final = 8
"""Entries up to which their reading is brief."""


def filter_of(value: int) -> ViewFilter:
    """The filter that a request asks for; ALL where it does not say."""
    try:
        return ViewFilter(value or ViewFilter.ALL)
    except ValueError:
        raise invalid("filter", f"{value} is not a filter.") from None


def watched(call: WatchChangesCall) -> Wanted:
    """What a watch wants to be told. Raises LIMIT_EXCEEDED."""
    wanted = Wanted(filter_of(call.filter), body_bytes_max=call.body_bytes_max, whole=call.whole_schemes)
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


def lines_of(request: read_pb2.GetEntriesRequest) -> LineRange | None:
    """The lines that a request asks for; None: whole bodies."""
    if not request.HasField("lines"):
        return None
    return LineRange(request.lines.line or None, request.lines.limit or None)


def span_of(lines: LineSlice) -> read_pb2.LineSpan:
    """Which lines an answer holds; zeros for none."""
    if lines.last < lines.first:
        return read_pb2.LineSpan(total=lines.total)
    return read_pb2.LineSpan(first=lines.first, last=lines.last, total=lines.total)


def chosen(field: str, kind: type[E], values: Iterable[int]) -> frozenset[E]:
    """The members of an enum that a request names. Raises INVALID_FIELD."""
    try:
        found = frozenset(map(kind, values))
    except ValueError:
        found = frozenset({kind(0)})
    if kind(0) in found:
        raise invalid(field, f"{field} names what every entry has or none can have.")
    return found


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
        schemes = self._service.newer_schemes(rules, request.schemes_version)
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
        query = PathsQuery(tuple(request.paths), not request.without_bodies, lines_of(request), at_of(request))
        address = address_of(request)
        read = partial(get_entries, rules=self._rules, address=address, query=query)
        inline = len(query.paths) <= INLINE_PATHS_MAX and query.lines is None and query.at is None
        got = await self._database.read(read, inline=inline)
        return read_pb2.GetEntriesResponse(
            entries=[entry_wire.entry_to_pb(one.entry) for one in got],
            spans=[span_of(one.lines) for one in got if one.lines],
        )

    @query
    def ListEntries(self, request: read_pb2.ListEntriesRequest, connection: Connection) -> Fields:
        rules, wanted = self._rules, _query_of(request)
        check_time = time_limit(self._service.clock_s, rules.pattern_s_max)
        found, token = list_entries(connection, rules, address_of(request), wanted, check_time)
        return {"entries": map(entry_wire.entry_to_pb, found), "next_page_token": token}

    @query
    def ListEntryHistory(self, request: read_pb2.ListEntryHistoryRequest, connection: Connection) -> Fields:
        found, token = list_entry_history(
            connection,
            address_of(request),
            request.path,
            request.page_size,
            request.page_token,
            bodies=not request.without_bodies,
        )
        intervals = [
            read_pb2.EntryInterval(entry=entry_wire.entry_to_pb(one.entry), to_revision=one.to_revision)
            for one in found
        ]
        return {"intervals": intervals, "next_page_token": token}

    @query
    def SearchEntries(self, request: read_pb2.SearchEntriesRequest, connection: Connection) -> Fields:
        found = search_entries(connection, request.project, request.query, list(request.schemes), request.limit)
        return {
            "hits": [
                read_pb2.SearchHit(path=hit.path, revision=hit.revision, score=hit.score, snippet=text)
                for hit, text in found.hits
            ],
            "indexed_revision": found.indexed_revision,
            "revision": found.revision,
        }

    def _stamped(self, change: RunChanges) -> RunChanges:
        return replace(change, send_ms=self._service.clock_ms())

    @watch(_stamped)
    async def WatchChanges(self, call: WatchChangesCall) -> ChangesWatch:
        wanted = watched(call)
        return await watch_changes(self._database, lambda: self._rules, address_of(call), call.after, wanted)

    @query
    def ReadBody(self, request: stream_pb2.ReadBodyRequest, connection: Connection) -> Fields:
        """A part of a body, cut at characters: from an offset on, or the last one."""
        if request.bytes_max > PART_BYTES_MAX:
            raise over_limit("bytes_max", PART_BYTES_MAX, request.bytes_max, "bytes")
        if request.HasField("offset") and request.offset < 0:
            raise invalid("offset", f"offset must be 0 or more bytes; it is {request.offset}.")
        run = get_run_head(connection, request.project, request.run)
        shown = find_entry_row(connection, run.id, request.path)
        if shown is None:
            raise fault(Reason.ENTRY_NOT_FOUND, f"There is no entry {request.path}.", path=request.path)
        size, total = request.bytes_max or PART_BYTES, shown.body_size_bytes
        begin = min(request.offset, total) if request.HasField("offset") else max(0, total - size)
        data = read_part(connection, shown, begin, min(begin + size, total))
        torn = _torn(data)
        text = data[torn:].decode(errors="ignore")
        return {"text": text, "offset": begin + torn, "body_size_bytes": total}


def _query_of(request: read_pb2.ListEntriesRequest) -> EntryQuery:
    return EntryQuery(
        pattern=request.pattern,
        body_pattern=request.body_pattern,
        bodies=not request.without_bodies,
        size=request.page_size,
        token=request.page_token,
        schemes=frozenset(request.schemes),
        categories=frozenset(request.categories),
        visibilities=chosen("visibilities", Visibility, request.visibilities),
        states=chosen("states", State, request.states),
        at=at_of(request),
        by_position=request.by_position,
    )


def _torn(data: bytes) -> int:
    """Number of leading continuation bytes of UTF-8."""
    return next((index for index, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), len(data[:4]))

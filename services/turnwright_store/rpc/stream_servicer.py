"""Rpcs of stream.proto."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from turnwright.store.v1 import stream_pb2
from turnwright.types.v1 import stream_pb2 as types_pb2

from turnwright_core.checks import invalid, over_limit
from turnwright_core.entries import Tier
from turnwright_core.errors import Reason, fault
from turnwright_core.kit.auth import Caller
from turnwright_core.wire.entries import cursor_to_pb
from turnwright_store.app import streams
from turnwright_store.ports import Connection, Durability, Transaction
from turnwright_store.rpc.calls import Calls, Fields, address_of, mutation, query, run_locks
from turnwright_store.sql.runs import RunHead, get_run_head
from turnwright_store.sql.streams import read_part
from turnwright_store.sql.views import find_entry_row

PART_BYTES: Final = 64 * 1024
"""Bytes of a body that are read where the request does not say."""

PART_BYTES_MAX: Final = 1024 * 1024
"""Most bytes of a body that are read at once."""


class StreamRpcs(Calls):
    """Rpcs of stream.proto."""

    def _cursor(self, run: RunHead) -> Any:
        return cursor_to_pb(run.cursor(self._rules.incarnation))

    @mutation(locks=run_locks, min_tier=Tier.PLUGIN)
    def OpenStream(self, request: stream_pb2.OpenStreamRequest, tx: Transaction, caller: Caller) -> Fields:
        opening = streams.NewStream(request.tool, request.target, list(request.channels), request.producer)
        path, channels, run = streams.open_stream(tx, self._rules, caller, address_of(request), opening)
        return {"path": path, "channels": _channels(channels), "cursor": self._cursor(run)}

    @mutation(locks=run_locks, min_tier=Tier.PLUGIN, durability=Durability.NORMAL)
    def AppendStream(self, request: stream_pb2.AppendStreamRequest, tx: Transaction, caller: Caller) -> Fields:
        offset = request.offset if request.HasField("offset") else None
        piece = streams.StreamAppend(request.path, request.channel, request.text, offset, request.producer)
        channel, run = streams.append_stream(tx, self._rules, caller, address_of(request), piece)
        return {"channel": _channels([channel])[0], "cursor": self._cursor(run)}

    @mutation(locks=run_locks, min_tier=Tier.PLUGIN)
    def EndStream(self, request: stream_pb2.EndStreamRequest, tx: Transaction, caller: Caller) -> Fields:
        channels, run = streams.end_stream(tx, self._rules, caller, address_of(request), _ending(request))
        return {"channels": _channels(channels), "cursor": self._cursor(run)}

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


def _channels(channels: Iterable[streams.Channel]) -> list[types_pb2.StreamChannel]:
    return [
        types_pb2.StreamChannel(
            number=channel.number,
            path=channel.path,
            body_size_bytes=channel.body_size_bytes,
            state=int(channel.state),  # type: ignore[arg-type]
        )
        for channel in channels
    ]


def _ending(request: stream_pb2.EndStreamRequest) -> streams.StreamEnd:
    try:
        end = streams.EndKind(request.end)
    except ValueError:
        raise invalid("end", "end must be completed, aborted or cancelled.") from None
    return streams.StreamEnd(
        request.path,
        end,
        request.producer,
        request.exit_code if request.HasField("exit_code") else None,
        request.duration_s if request.HasField("duration_s") else None,
        request.reason,
    )


def _torn(data: bytes) -> int:
    """Number of leading continuation bytes of UTF-8."""
    return next((index for index, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), len(data[:4]))

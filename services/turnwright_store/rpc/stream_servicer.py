"""Rpcs of StreamService: the caller is the producer of the streams that it opens."""

from __future__ import annotations

from typing import Any

from msgspec import structs
from turnwright.streams.v1 import stream_service_pb2 as pb
from turnwright.streams.v1 import stream_service_pb2_grpc
from turnwright.types.v1 import stream_pb2
from turnwright_values.store import Durability
from turnwright_values.types import StreamChannel, StreamEnd, Tier

from turnwright_core.checks import invalid
from turnwright_core.wire.codec import codec
from turnwright_core.wire.entries import cursor_to_pb
from turnwright_kit.identity.caller import Caller
from turnwright_store.app import streams
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, Fields, address_of, mutation, run_locks
from turnwright_store.sql.runs import RunHead

_channel_to_pb, _ = codec(StreamChannel, stream_pb2.StreamChannel)


class StreamServicer(Calls, stream_service_pb2_grpc.StreamServiceServicer):
    """Serves turnwright.streams.v1.StreamService."""

    def _cursor(self, run: RunHead) -> Any:
        return cursor_to_pb(run.cursor(self._rules.incarnation))

    @mutation(locks=run_locks)
    def OpenStream(self, request: pb.OpenStreamRequest, tx: Transaction, caller: Caller) -> Fields:
        path, channels, run = streams.open_stream(tx, self._rules, _producer(caller), request)
        return {"path": path, "channels": map(_channel_to_pb, channels), "cursor": self._cursor(run)}

    @mutation(locks=run_locks, durability=Durability.NORMAL)
    def AppendStream(self, request: pb.AppendStreamRequest, tx: Transaction, caller: Caller) -> Fields:
        channel, run = streams.append_stream(tx, self._rules, _producer(caller), request)
        return {"channel": _channel_to_pb(channel), "cursor": self._cursor(run)}

    @mutation(locks=run_locks)
    def EndStream(self, request: pb.EndStreamRequest, tx: Transaction, caller: Caller) -> Fields:
        channels, run = streams.end_stream(
            tx, self._rules, _producer(caller), address_of(request), _ending(request, caller)
        )
        return {"channels": map(_channel_to_pb, channels), "cursor": self._cursor(run)}


def _producer(caller: Caller) -> Caller:
    """A client writes its streams as plugins do (C32)."""
    return structs.replace(caller, tier=max(caller.tier, Tier.PLUGIN))


def _ending(request: pb.EndStreamRequest, caller: Caller) -> streams.StreamEnding:
    if not request.end:
        raise invalid("end", "end must be completed, aborted or cancelled.")
    return streams.StreamEnding(
        request.path,
        StreamEnd(request.end),
        caller.name,
        request.exit_code if request.HasField("exit_code") else None,
        request.duration.seconds + request.duration.nanos / 1e9 if request.HasField("duration") else None,
        request.reason,
    )

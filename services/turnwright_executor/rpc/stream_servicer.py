"""Rpcs of stream.proto: streams produced by clients, and ending any stream."""

from __future__ import annotations

from functools import partial

from turnwright.types.v1 import stream_pb2

from turnwright_executor.rpc.forwarding import CallIdentity, Forward, Forwarding

_produced = partial(Forward, identity=CallIdentity.PRODUCER)


class ExecutorStreamRpcs(Forwarding):
    """Rpcs of stream.proto; the caller is the producer."""

    OpenStream = _produced()
    AppendStream = _produced(renamed={"chunk": "text"})
    CompleteStream = _produced("EndStream", end=stream_pb2.STREAM_END_COMPLETED)
    AbortStream = _produced("EndStream", end=stream_pb2.STREAM_END_ABORTED)
    CancelStream = _produced("EndStream", end=stream_pb2.STREAM_END_CANCELLED)

"""The store over gRPC: streams that clients produce, and parts of bodies."""

from __future__ import annotations

from turnwright.executor.v1 import stream_pb2
from turnwright.store.v1 import store_service_pb2_grpc
from turnwright.store.v1 import stream_pb2 as store_pb2
from turnwright.types.v1 import stream_pb2 as types_pb2

from turnwright_core.entries import Tier
from turnwright_core.kit.auth import Caller
from turnwright_core.kit.peer import Peer


class StoreStreams:
    """Implements ports.Streams. The caller is the producer; the executor writes for it as plugins do (C32)."""

    def __init__(self, peer: Peer) -> None:
        """Speak through this peer."""
        self._peer = peer
        self._stub = store_service_pb2_grpc.StoreServiceStub(peer.channel)

    async def open(self, request: stream_pb2.OpenStreamRequest, caller: Caller) -> stream_pb2.OpenStreamResponse:
        """Begin a stream."""
        wanted = store_pb2.OpenStreamRequest(
            project=request.project,
            run=request.run,
            tool=request.tool,
            target=request.target,
            channels=request.channels,
            producer=caller.principal,
            request_id=request.request_id,
        )
        answer = await self._peer.call(self._stub.OpenStream, wanted, caller=_as_plugin(caller))
        return stream_pb2.OpenStreamResponse(path=answer.path, channels=answer.channels)

    async def append(self, request: stream_pb2.AppendStreamRequest, caller: Caller) -> stream_pb2.AppendStreamResponse:
        """Add to a channel."""
        wanted = store_pb2.AppendStreamRequest(
            project=request.project,
            run=request.run,
            path=request.path,
            channel=request.channel,
            text=request.chunk,
            offset=request.offset if request.HasField("offset") else None,
            producer=caller.principal,
            request_id=request.request_id,
        )
        return stream_pb2.AppendStreamResponse(
            channel=(await self._peer.call(self._stub.AppendStream, wanted, caller=_as_plugin(caller))).channel
        )

    async def complete(
        self, request: stream_pb2.CompleteStreamRequest, caller: Caller
    ) -> stream_pb2.CompleteStreamResponse:
        """End a stream with its result."""
        wanted = store_pb2.EndStreamRequest(
            project=request.project,
            run=request.run,
            path=request.path,
            end=types_pb2.STREAM_END_COMPLETED,
            exit_code=request.exit_code if request.HasField("exit_code") else None,
            duration_s=request.duration_s if request.HasField("duration_s") else None,
            producer=caller.principal,
            request_id=request.request_id,
        )
        answer = await self._peer.call(self._stub.EndStream, wanted, caller=_as_plugin(caller))
        return stream_pb2.CompleteStreamResponse(channels=answer.channels)

    async def abort(self, request: stream_pb2.AbortStreamRequest, caller: Caller) -> stream_pb2.AbortStreamResponse:
        """Give a stream up."""
        wanted = store_pb2.EndStreamRequest(
            project=request.project,
            run=request.run,
            path=request.path,
            end=types_pb2.STREAM_END_ABORTED,
            duration_s=request.duration_s if request.HasField("duration_s") else None,
            reason=request.reason,
            producer=caller.principal,
            request_id=request.request_id,
        )
        answer = await self._peer.call(self._stub.EndStream, wanted, caller=_as_plugin(caller))
        return stream_pb2.AbortStreamResponse(channels=answer.channels)

    async def cancel(self, request: stream_pb2.CancelStreamRequest, caller: Caller) -> stream_pb2.CancelStreamResponse:
        """End a stream whoever produces it."""
        wanted = store_pb2.EndStreamRequest(
            project=request.project,
            run=request.run,
            path=request.path,
            end=types_pb2.STREAM_END_CANCELLED,
            reason=request.reason,
            producer=caller.principal,
            request_id=request.request_id,
        )
        answer = await self._peer.call(self._stub.EndStream, wanted, caller=_as_plugin(caller))
        return stream_pb2.CancelStreamResponse(channels=answer.channels)


def _as_plugin(caller: Caller) -> Caller:
    return Caller(caller.principal, Tier.PLUGIN, max(caller.ceiling, Tier.PLUGIN))

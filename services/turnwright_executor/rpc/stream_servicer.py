"""Rpcs of stream.proto: streams that clients produce, and the end of any stream."""

from __future__ import annotations

from typing import Any

from turnwright.executor.v1 import stream_pb2 as pb

from turnwright_core.kit.auth import current_caller
from turnwright_executor.ports.streams import Streams


class StreamRpcs:
    """Rpcs of stream.proto; the caller is the producer."""

    _streams: Streams

    async def OpenStream(self, request: pb.OpenStreamRequest, context: Any) -> pb.OpenStreamResponse:
        """Begin a stream."""
        return await self._streams.open(request, current_caller())

    async def AppendStream(self, request: pb.AppendStreamRequest, context: Any) -> pb.AppendStreamResponse:
        """Add to a channel."""
        return await self._streams.append(request, current_caller())

    async def CompleteStream(self, request: pb.CompleteStreamRequest, context: Any) -> pb.CompleteStreamResponse:
        """End a stream with its result."""
        return await self._streams.complete(request, current_caller())

    async def AbortStream(self, request: pb.AbortStreamRequest, context: Any) -> pb.AbortStreamResponse:
        """Give a stream up."""
        return await self._streams.abort(request, current_caller())

    async def CancelStream(self, request: pb.CancelStreamRequest, context: Any) -> pb.CancelStreamResponse:
        """End a stream whoever produces it."""
        return await self._streams.cancel(request, current_caller())

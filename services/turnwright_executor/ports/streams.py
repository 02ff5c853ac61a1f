"""What callers produce into streams."""

from __future__ import annotations

from typing import Protocol

from turnwright.executor.v1 import stream_pb2

from turnwright_core.kit.auth import Caller


class Streams(Protocol):
    """Streams that callers produce, in the words of the contract. Every method raises TurnwrightError."""

    async def open(self, request: stream_pb2.OpenStreamRequest, caller: Caller) -> stream_pb2.OpenStreamResponse:
        """Begin a stream."""
        ...

    async def append(self, request: stream_pb2.AppendStreamRequest, caller: Caller) -> stream_pb2.AppendStreamResponse:
        """Add to a channel."""
        ...

    async def complete(
        self, request: stream_pb2.CompleteStreamRequest, caller: Caller
    ) -> stream_pb2.CompleteStreamResponse:
        """End a stream with its result."""
        ...

    async def abort(self, request: stream_pb2.AbortStreamRequest, caller: Caller) -> stream_pb2.AbortStreamResponse:
        """Give a stream up."""
        ...

    async def cancel(self, request: stream_pb2.CancelStreamRequest, caller: Caller) -> stream_pb2.CancelStreamResponse:
        """End a stream whoever produces it."""
        ...

"""Streams through the executor: producing one, and ending any.

A producer passes the length returned by each answer as the next offset; then a failed append can be retried without
duplicating output.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwright.executor.v1 import executor_service_pb2_grpc, stream_pb2
from turnwright.types.v1 import stream_pb2 as types_pb2

from turnwright_core.kit.peer import Peer


class StreamCalls:
    """The calls of stream.proto. Every method raises TurnwrightError."""

    _peer: Peer
    _stub: executor_service_pb2_grpc.ExecutorServiceAsyncStub

    async def open_stream(
        self, project: str, run: str, tool: str, target: str, *, channels: Sequence[int] = (), request_id: str = ""
    ) -> stream_pb2.OpenStreamResponse:
        """Begin a stream produced by the caller; identified by the path in the answer."""
        request = stream_pb2.OpenStreamRequest(
            project=project, run=run, tool=tool, target=target, channels=channels, request_id=request_id
        )
        return await self._peer.call(self._stub.OpenStream, request)

    async def append_stream(
        self,
        project: str,
        run: str,
        path: str,
        channel: int,
        chunk: str,
        *,
        offset: int | None = None,
        request_id: str = "",
    ) -> types_pb2.StreamChannel:
        """Append to a channel, or send a heartbeat with an empty chunk. Returns the channel as it is now."""
        request = stream_pb2.AppendStreamRequest(
            project=project, run=run, path=path, channel=channel, chunk=chunk, offset=offset, request_id=request_id
        )
        return (await self._peer.call(self._stub.AppendStream, request)).channel

    async def complete_stream(
        self,
        project: str,
        run: str,
        path: str,
        *,
        exit_code: int | None = None,
        duration_s: float | None = None,
        request_id: str = "",
    ) -> Sequence[types_pb2.StreamChannel]:
        """End a stream with its result. Returns the channels that this call ended."""
        request = stream_pb2.CompleteStreamRequest(
            project=project, run=run, path=path, exit_code=exit_code, duration_s=duration_s, request_id=request_id
        )
        return (await self._peer.call(self._stub.CompleteStream, request)).channels

    async def abort_stream(
        self,
        project: str,
        run: str,
        path: str,
        *,
        reason: str = "",
        duration_s: float | None = None,
        request_id: str = "",
    ) -> Sequence[types_pb2.StreamChannel]:
        """Give up a stream. Returns the channels that this call ended."""
        request = stream_pb2.AbortStreamRequest(
            project=project, run=run, path=path, reason=reason, duration_s=duration_s, request_id=request_id
        )
        return (await self._peer.call(self._stub.AbortStream, request)).channels

    async def cancel_stream(
        self, project: str, run: str, path: str, *, reason: str = "", request_id: str = ""
    ) -> Sequence[types_pb2.StreamChannel]:
        """End a stream of any producer; a command on the executor is stopped. Returns the channels that it ended."""
        request = stream_pb2.CancelStreamRequest(
            project=project, run=run, path=path, reason=reason, request_id=request_id
        )
        return (await self._peer.call(self._stub.CancelStream, request)).channels

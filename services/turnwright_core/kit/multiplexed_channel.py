"""A channel whose calls share one stream to the service: the multiplexed stream. Without it they are ordinary rpcs.

The stream is opened by the first call, which does not wait for it. If it is lost, calls of which nothing was answered
are made once more as rpcs where that is safe. Source: docs/adr/0043.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import msgspec

from turnwright_core.backoff import Backoff
from turnwright_core.kit.idempotency import may_be_repeated
from turnwright_core.kit.multiplexed_calls import MultiplexedStream, NotBegunError, StreamingCall, UnansweredError
from turnwright_core.kit.multiplexed_frames import (
    METHOD,
    PART_BYTES,
    Call,
    GoAway,
    Hello,
    ValueCodecs,
    decode,
    encode_value,
    values_of,
)
from turnwright_core.kit.scope import TRACEPARENT, TRACESTATE, Metadata
from turnwright_core.kit.transport import wait_for_connection
from turnwright_core.rpc_codec import Codecs, RpcCodec

REOPEN_BACKOFF: Final = Backoff(0.05, 30.0)
"""Backoff before the next stream is tried, after one that was refused or lost."""

STREAM_S_MAX: Final = 300.0
"""Seconds after which a stream is replaced: by one with the certificates of then, and maybe to another replica."""

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class MultiplexedChannel:
    """Has of a channel what stubs and peers use."""

    def __init__(self, channel: grpc.aio.Channel, codecs: Codecs, stream_s: float = STREAM_S_MAX) -> None:
        """Both streams and rpcs go through this channel. `stream_s`: seconds that a multiplexed stream is used."""
        self._channel = channel
        self._stream_s = stream_s
        self._codecs = codecs
        self._values: ValueCodecs | None = None
        self._stream: MultiplexedStream | None = None
        self._opening: asyncio.Task[None] | None = None
        self._held: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._next_s = 0.0

    def unary_unary(self, method: str, **more: Any) -> Callable[..., Awaitable[Any]]:
        """As in grpc.aio.Channel; methods with codecs take values."""
        rpc = _Rpc(self._channel.unary_unary, method, self._codecs.get(method), more)

        async def call(request: Any, *, timeout: float | None = None, metadata: Metadata = ()) -> Any:  # noqa: ASYNC109 - as gRPC's
            begun_s = time.monotonic()
            stream = self._ready(metadata)
            if stream and len(data := rpc.encode(request)) <= PART_BYTES:
                try:
                    answer = await stream.unary(Call(next(stream.ids), method, data, metadata, timeout))
                    return self._decoder(rpc)(answer)
                except UnansweredError as error:
                    timeout = await self._before_repeat(error, rpc, request, begun_s, timeout)
            return await rpc.call(request, timeout=timeout, metadata=metadata)

        return call

    def unary_stream(self, method: str, **more: Any) -> Callable[..., Any]:
        """As in grpc.aio.Channel; methods with codecs take values."""
        rpc = _Rpc(self._channel.unary_stream, method, self._codecs.get(method), more)

        def call(request: Any, *, timeout: float | None = None, metadata: Metadata = ()) -> Any:
            begun_s = time.monotonic()

            async def again(error: UnansweredError) -> Any:
                left_s = await self._before_repeat(error, rpc, request, begun_s, timeout)
                return rpc.call(request, timeout=left_s, metadata=metadata)

            stream = self._ready(metadata)
            if stream and len(data := rpc.encode(request)) <= PART_BYTES:
                asked = Call(next(stream.ids), method, data, metadata, timeout)
                return StreamingCall(stream, asked, self._decoder(rpc), again)
            return rpc.call(request, timeout=timeout, metadata=metadata)

        return call

    def _decoder(self, rpc: _Rpc) -> Callable[[bytes], Any]:
        return self._values.answers.get(rpc.method, rpc.deserialize) if self._values else rpc.deserialize

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._channel.get_state(try_to_connect)

    async def close(self) -> None:
        held = list(self._held)
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await self._channel.close()

    async def _before_repeat(
        self, error: UnansweredError, rpc: _Rpc, request: Any, begun_s: float, timeout_s: float | None
    ) -> float | None:
        """The seconds that are left for a call that is made again as an rpc. Raises the error if it must not be.

        A lost call without a deadline is a watch: who reads it opens the next one.
        """
        if not isinstance(error, NotBegunError):
            if timeout_s is None or not may_be_repeated(rpc.method, request):
                raise error
            await wait_for_connection(self._channel)
        return None if timeout_s is None else max(0.0, begun_s + timeout_s - time.monotonic())

    def _ready(self, metadata: Metadata) -> MultiplexedStream | None:
        """The open stream; None while there is none."""
        now_s = time.monotonic()
        stream = self._stream
        if stream is not None and now_s < stream.ends_s:
            return stream
        if self._opening is None and now_s >= self._next_s:
            # Without the context of this call, which is only the first one.
            self._opening = asyncio.create_task(
                self._hold(metadata), name="multiplexed stream", context=contextvars.Context()
            )
            self._held.add(self._opening)
            self._opening.add_done_callback(self._lost)
        return stream

    async def _hold(self, metadata: Metadata) -> None:
        self._values = values_of(self._codecs)
        # Without the trace of the first call.
        own = [pair for pair in metadata if pair[0] not in (TRACEPARENT, TRACESTATE)]
        call: Any = self._channel.stream_stream(METHOD)(metadata=own)
        stream = MultiplexedStream(call.cancel)
        writing = asyncio.create_task(stream.write(call), name="stream writes")
        why = "the stream has ended"
        try:
            stream.send(Hello(self._values.schema))
            async for data in call:
                for frame in decode(data):
                    if isinstance(frame, Hello):
                        self._opened(stream)
                    elif isinstance(frame, GoAway):
                        self._leave(stream)
                    else:
                        stream.take(frame)
        except grpc.aio.AioRpcError as error:
            why = error.details() or error.code().name.lower()
        except msgspec.DecodeError as error:
            why = str(error)
        finally:
            self._leave(stream)
            writing.cancel()
            call.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            stream.lose(why)

    def _opened(self, stream: MultiplexedStream) -> None:
        before, self._stream = self._stream, stream
        stream.ends_s = time.monotonic() + self._stream_s
        self._opening, self._failures = None, 0
        if before:
            before.retire()

    def _leave(self, stream: MultiplexedStream) -> None:
        if self._stream is stream:
            self._stream = None
            self._put_off()

    def _lost(self, task: asyncio.Task[None]) -> None:
        self._held.discard(task)
        if self._opening is task:
            self._opening = None
            self._put_off()

    def _put_off(self) -> None:
        self._failures += 1
        self._next_s = time.monotonic() + REOPEN_BACKOFF.pause_s(self._failures)


class _Rpc:
    """One method of a stub."""

    def __init__(
        self, make: Callable[..., Any], method: str, codec: RpcCodec[Any, Any] | None, more: dict[str, Any]
    ) -> None:
        self.method = method
        self.deserialize: Callable[[bytes], Any] = more["response_deserializer"]
        serialize: Callable[[Any], bytes] = more["request_serializer"]
        self.encode = encode_value if codec else serialize
        """For the stream."""
        if codec:
            more = {
                **more,
                "request_serializer": lambda request: serialize(codec.request_to_pb(request)),
                "response_deserializer": lambda data: codec.answer_from_pb(self.deserialize(data)),
            }
        self.call = make(method, **more)
        """Makes it an rpc."""

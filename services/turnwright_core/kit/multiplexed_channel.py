"""A channel whose calls share one stream to the service: the multiplexed stream. Without it they are ordinary rpcs.

The stream is opened by the first call, which does not wait for it. Source: docs/adr/0043.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
import msgspec

from turnwright_core.backoff import Backoff
from turnwright_core.kit.in_process_context import Metadata, error_of
from turnwright_core.kit.multiplexed_frames import (
    METHOD,
    PART_BYTES,
    WINDOW,
    AnswerPart,
    Call,
    CallEnd,
    Cancel,
    Frame,
    GoAway,
    Hello,
    InitialMetadata,
    Pairs,
    ValueCodecs,
    WindowUpdate,
    batches,
    decode,
    encode_value,
)
from turnwright_core.kit.scope import TRACEPARENT, TRACESTATE
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
        self._stream: _MultiplexedStream | None = None
        self._opening: asyncio.Task[None] | None = None
        self._held: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._next_s = 0.0

    def unary_unary(self, method: str, *codecs: Any, **more: Any) -> Callable[..., Awaitable[Any]]:
        """As in grpc.aio.Channel; the request may be a value, and then the answer is one."""
        plain: Any = self._channel.unary_unary(method, *codecs, **more)
        rpc = _Rpc(method, self._codecs.get(method), more)

        async def call(request: Any, *, timeout: float | None = None, metadata: Metadata = ()) -> Any:  # noqa: ASYNC109 - as gRPC's
            is_value = rpc.is_value(request)
            if stream := self._ready(metadata):
                data = encode_value(request) if is_value else rpc.serialize(request)
                if len(data) <= PART_BYTES:
                    with contextlib.suppress(_RefusedError):
                        answer = await stream.unary(Call(next(stream.ids), method, data, is_value, metadata, timeout))
                        return stream.decoder(rpc, is_value=is_value)(answer)
            if is_value:
                sent = rpc.codec.request_to_pb(request)
                return rpc.codec.answer_from_pb(await plain(sent, timeout=timeout, metadata=metadata))
            return await plain(request, timeout=timeout, metadata=metadata)

        return call

    def unary_stream(self, method: str, *codecs: Any, **more: Any) -> Callable[..., Any]:
        """As in grpc.aio.Channel; the request may be a value, and then the messages are."""
        plain: Any = self._channel.unary_stream(method, *codecs, **more)
        rpc = _Rpc(method, self._codecs.get(method), more)

        def call(request: Any, *, timeout: float | None = None, metadata: Metadata = ()) -> Any:
            is_value = rpc.is_value(request)
            if stream := self._ready(metadata):
                data = encode_value(request) if is_value else rpc.serialize(request)
                if len(data) <= PART_BYTES:
                    asked = Call(next(stream.ids), method, data, is_value, metadata, timeout)
                    return _StreamingCall(stream, asked, stream.decoder(rpc, is_value=is_value))
            if is_value:
                sent = rpc.codec.request_to_pb(request)
                return _Decoded(plain(sent, timeout=timeout, metadata=metadata), rpc.codec.answer_from_pb)
            return plain(request, timeout=timeout, metadata=metadata)

        return call

    def stream_stream(self, *args: Any, **more: Any) -> Any:
        return self._channel.stream_stream(*args, **more)

    def stream_unary(self, *args: Any, **more: Any) -> Any:
        return self._channel.stream_unary(*args, **more)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """As in grpc.aio.Channel."""
        return self._channel.get_state(try_to_connect)

    async def close(self) -> None:
        held = list(self._held)
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await self._channel.close()

    def _ready(self, metadata: Metadata) -> _MultiplexedStream | None:
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
        """Keep a multiplexed stream until it ends."""
        if self._values is None:
            self._values = ValueCodecs(self._codecs)
        # Without the trace of the first call.
        own = [pair for pair in metadata if pair[0] not in (TRACEPARENT, TRACESTATE)]
        call: Any = self._channel.stream_stream(METHOD)(metadata=own)
        stream = _MultiplexedStream(self._values, call.cancel)
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

    def _opened(self, stream: _MultiplexedStream) -> None:
        before, self._stream = self._stream, stream
        stream.ends_s = time.monotonic() + self._stream_s
        self._opening, self._failures = None, 0
        if before:
            before.retire()

    def _leave(self, stream: _MultiplexedStream) -> None:
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

    def __init__(self, method: str, codec: RpcCodec[Any, Any] | None, more: dict[str, Any]) -> None:
        self.method = method
        self.codec: Any = codec
        self.serialize: Callable[[Any], bytes] = more["request_serializer"]
        self.deserialize: Callable[[bytes], Any] = more["response_deserializer"]

    def is_value(self, request: Any) -> bool:
        return self.codec is not None and isinstance(request, self.codec.request)


class _MultiplexedStream:
    """An open multiplexed stream, at the caller."""

    def __init__(self, values: ValueCodecs, end: Callable[[], object]) -> None:
        """`end` ends the stream."""
        self.ids = itertools.count(1)
        self.ends_s = math.inf
        self._end = end
        self._is_retired = False
        self._values = values
        self._frames: list[Frame] = []
        self._woken = asyncio.Event()
        self._waiting: dict[int, _UnaryCall | _StreamingCall] = {}
        self._parts: dict[int, bytearray] = {}

    def decoder(self, rpc: _Rpc, *, is_value: bool) -> Callable[[bytes], Any]:
        return (self._values.answers.get(rpc.method) if is_value else None) or rpc.deserialize

    def send(self, frame: Frame) -> None:
        self._frames.append(frame)
        self._woken.set()

    async def write(self, call: Any) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            frames, self._frames = self._frames, []
            for data in batches(frames):
                await call.write(data)

    def begin(self, call: Call, caller: _UnaryCall | _StreamingCall) -> None:
        self._waiting[call.id] = caller
        self.send(call)

    def retire(self) -> None:
        """There are no more calls: end with the last one."""
        self._is_retired = True
        self._end_if_retired()

    def _end_if_retired(self) -> None:
        if self._is_retired and not self._waiting:
            self._end()

    def leave(self, call: int) -> None:
        """The caller does not wait any more."""
        if self._waiting.pop(call, None):
            self._parts.pop(call, None)
            self.send(Cancel(call))
        self._end_if_retired()

    async def unary(self, call: Call) -> bytes:
        """The answer. Raises AioRpcError."""
        unary = _UnaryCall()
        self.begin(call, unary)
        try:
            async with asyncio.timeout(call.timeout_s):
                return await unary.answer
        except TimeoutError:
            raise _late() from None
        finally:
            self.leave(call.id)

    def take(self, frame: Frame) -> None:
        if isinstance(frame, AnswerPart):
            self._answered(frame)
        elif isinstance(frame, CallEnd) and (waiting := self._waiting.pop(frame.id, None)):
            self._parts.pop(frame.id, None)
            waiting.end(_failure(waiting, frame))
            self._end_if_retired()
        elif isinstance(frame, InitialMetadata) and frame.id in self._waiting:
            self._waiting[frame.id].initial = frame.metadata

    def _answered(self, frame: AnswerPart) -> None:
        waiting = self._waiting.get(frame.id)
        if waiting is None:
            return
        data = frame.data
        if frame.more:
            self._parts.setdefault(frame.id, bytearray()).extend(data)
            return
        if begun := self._parts.pop(frame.id, None):
            data = bytes(begun + data)
        if isinstance(waiting, _UnaryCall):
            del self._waiting[frame.id]
        waiting.take(data)

    def lose(self, why: str) -> None:
        """The stream has ended, and so have its calls."""
        for waiting in self._waiting.values():
            waiting.end(_failure(waiting, CallEnd(0, grpc.StatusCode.UNAVAILABLE.value[0], why)))
        self._waiting.clear()


class _UnaryCall:
    """A call that waits for one answer."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.initial: Pairs = ()

    def take(self, data: bytes) -> None:
        if not self.answer.done():
            self.answer.set_result(data)

    def end(self, error: grpc.aio.AioRpcError | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(error or error_of(grpc.StatusCode.UNKNOWN, "the call ended without an answer"))


class _StreamingCall:
    """A call that returns a stream; iterate it, and cancel it at the end."""

    def __init__(self, stream: _MultiplexedStream, call: Call, decoder: Callable[[bytes], Any]) -> None:
        """Begin the call."""
        self.initial: Pairs = ()
        self._stream = stream
        self._id = call.id
        self._decode = decoder
        self._messages: asyncio.Queue[bytes | grpc.aio.AioRpcError | None] = asyncio.Queue()
        self._deadline = None
        if call.timeout_s is not None:
            self._deadline = asyncio.get_running_loop().call_later(call.timeout_s, self._expire)
        stream.begin(call, self)

    def _expire(self) -> None:
        self.cancel()
        self.end(_late())

    def take(self, data: bytes) -> None:
        self._messages.put_nowait(data)

    def end(self, error: grpc.aio.AioRpcError | None) -> None:
        """After all messages that have come."""
        self._messages.put_nowait(error)

    def cancel(self) -> None:
        if self._deadline:
            self._deadline.cancel()
        self._stream.leave(self._id)

    async def __aiter__(self) -> AsyncIterator[Any]:
        """The messages. Raises AioRpcError if the call failed, after the messages before it."""
        taken = 0
        while isinstance(data := await self._messages.get(), bytes):
            taken += 1
            if taken == WINDOW // 2:
                self._stream.send(WindowUpdate(self._id, taken))
                taken = 0
            yield self._decode(data)
        if data is not None:
            raise data


class _Decoded:
    """A stream of an rpc whose messages are read as values."""

    def __init__(self, call: Any, decoder: Callable[[Any], Any]) -> None:
        self._call = call
        self._decode = decoder

    def cancel(self) -> None:
        self._call.cancel()

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for message in self._call:
            yield self._decode(message)


class _RefusedError(grpc.aio.AioRpcError):
    """The call was not begun."""


def _failure(call: _UnaryCall | _StreamingCall, end: CallEnd) -> grpc.aio.AioRpcError | None:
    """The error of a call; None if it has none."""
    if not end.code:
        return None
    kind = _RefusedError if end.is_refused else grpc.aio.AioRpcError
    code = _CODES.get(end.code, grpc.StatusCode.UNKNOWN)
    return kind(code, grpc.aio.Metadata(*call.initial), grpc.aio.Metadata(*end.metadata), end.details)


def _late() -> grpc.aio.AioRpcError:
    return error_of(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")

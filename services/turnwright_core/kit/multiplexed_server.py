"""Serves multiplexed streams: one for each process that calls this one. Source: docs/adr/0043."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
import msgspec

from turnwright_core.checks import invalid
from turnwright_core.kit.auth import check_deployment
from turnwright_core.kit.in_process import LocalServer
from turnwright_core.kit.in_process_context import LocalContext, error_of
from turnwright_core.kit.multiplexed_frames import (
    CALLS_MAX,
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
    ValueCodecs,
    WindowUpdate,
    answers,
    batches,
    decode,
    encode_value,
    values_of,
)
from turnwright_core.kit.scope import Metadata
from turnwright_core.rpc_codec import Codecs

UNAVAILABLE: Final[int] = grpc.StatusCode.UNAVAILABLE.value[0]


class MultiplexedHandlers(grpc.GenericRpcHandler):
    """The handler of the method that opens a multiplexed stream."""

    def __init__(self, local: LocalServer, codecs: Callable[[], Codecs]) -> None:
        """Calls go to the handlers that `local` has. `codecs` is asked when the first stream opens."""
        self._local = local
        self._codecs = codecs
        self._streams: set[_MultiplexedStream] = set()
        self._handler = grpc.stream_stream_rpc_method_handler(self._open, bytes, bytes)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._handler if handler_call_details.method == METHOD else None

    def leave(self) -> None:
        """The service stops: multiplexed streams end with the calls that they have."""
        for stream in self._streams:
            stream.leave()

    async def _open(self, requests: Any, _context: Any) -> AsyncIterator[bytes]:
        # What its calls answer is counted on nobody, so it is for services only.
        check_deployment(METHOD)
        values = values_of(self._codecs())
        if _decoded(await anext(aiter(requests), b"")) != [Hello(values.schema)]:
            # Another release: its calls come as rpcs.
            raise invalid("hello", "The two sides of a multiplexed stream must know the same values.")
        stream = _MultiplexedStream(self._local, values)
        self._streams.add(stream)
        stream.send(Hello(values.schema))
        # Without the context of this call: the calls in the stream have their own.
        reading = asyncio.create_task(stream.read(requests), name="multiplexed stream", context=contextvars.Context())
        try:
            async for data in stream.written():
                yield data
        finally:
            self._streams.discard(stream)
            reading.cancel()
            stream.close()
            await asyncio.gather(reading, return_exceptions=True)


class _MultiplexedStream:
    """A multiplexed stream, at the service."""

    def __init__(self, local: LocalServer, values: ValueCodecs) -> None:
        self._local = local
        self._values = values
        self._calls: dict[int, asyncio.Task[Any]] = {}
        self._rooms: dict[int, asyncio.Semaphore] = {}
        self._frames: list[Frame] = []
        self._woken = asyncio.Event()
        self._has_ended = False
        self._is_leaving = False

    def send(self, frame: Frame) -> None:
        self._frames.append(frame)
        self._woken.set()

    async def written(self) -> AsyncGenerator[bytes, None]:
        """What is sent, until the caller has left or the service has and no call is in progress."""
        while not self._has_ended:
            await self._woken.wait()
            self._woken.clear()
            frames, self._frames = self._frames, []
            for data in batches(frames):
                yield data
            if self._is_leaving and not self._calls and not self._frames:
                return

    def leave(self) -> None:
        self._is_leaving = True
        self.send(GoAway())

    def close(self) -> None:
        """The caller has left."""
        for task in self._calls.values():
            task.cancel()

    async def read(self, requests: Any) -> None:
        try:
            async for data in requests:
                for frame in _decoded(data):
                    self._take(frame)
        finally:
            self._has_ended = True
            self._woken.set()

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Call):
            self._begin(frame)
        elif isinstance(frame, WindowUpdate) and frame.id in self._rooms:
            for _ in range(min(frame.count, WINDOW)):
                self._rooms[frame.id].release()
        elif isinstance(frame, Cancel) and frame.id in self._calls:
            self._calls[frame.id].cancel()

    def _begin(self, call: Call) -> None:
        if self._is_leaving or len(self._calls) >= CALLS_MAX or call.id in self._calls:
            self.send(CallEnd(call.id, UNAVAILABLE, "it takes no more calls", is_refused=True))
            return
        task = self._calls[call.id] = asyncio.create_task(self._carried_out(call))
        task.add_done_callback(lambda _: self._ended(call.id))

    def _ended(self, call: int) -> None:
        del self._calls[call]
        if self._is_leaving:
            self._woken.set()

    async def _carried_out(self, call: Call) -> None:
        try:
            handler = self._local.find(call.method)
            request = self._request(call, handler)
            if handler.unary_unary:
                context = _Context(self, call)
                self._answer(call, handler, await context.outcome(handler.unary_unary(request, context)))
            elif handler.unary_stream:
                await self._stream(call, handler, request)
                self.send(CallEnd(call.id))
            else:
                raise error_of(
                    grpc.StatusCode.UNIMPLEMENTED, "A multiplexed stream does not carry streams of requests."
                )
        except grpc.aio.AioRpcError as error:
            code: int = error.code().value[0]
            self.send(CallEnd(call.id, code, error.details() or "", tuple(error.trailing_metadata())))

    def _request(self, call: Call, handler: Any) -> Any:
        """Raises AioRpcError for a value that is none."""
        try:
            return self._values.requests.get(call.method, handler.request_deserializer)(call.data)
        except msgspec.MsgspecError as error:
            raise error_of(grpc.StatusCode.INVALID_ARGUMENT, f"The value cannot be read: {error}.") from None

    async def _stream(self, call: Call, handler: Any, request: Any) -> None:
        room = self._rooms[call.id] = asyncio.Semaphore(WINDOW)

        async def write(message: Any) -> None:
            await room.acquire()
            self._answer(call, handler, message)

        context = _Context(self, call, write)
        try:
            await context.outcome(handler.unary_stream(request, context))
        finally:
            del self._rooms[call.id]

    def _answer(self, call: Call, handler: Any, answer: Any) -> None:
        data = encode_value(answer) if call.method in self._values.answers else handler.response_serializer(answer)
        if len(data) <= PART_BYTES:
            self.send(AnswerPart(call.id, data))
        else:
            self._frames += answers(call.id, data)
            self._woken.set()


def _decoded(data: bytes) -> list[Frame]:
    """Frames. Raises InvalidError."""
    try:
        return decode(data)
    except msgspec.MsgspecError as error:
        raise invalid("frames", f"They cannot be read: {error}.") from None


class _Context(LocalContext):
    """A call of a multiplexed stream, as its handler sees it."""

    def __init__(
        self, stream: _MultiplexedStream, call: Call, write: Callable[[Any], Awaitable[None]] | None = None
    ) -> None:
        super().__init__(call.metadata, call.timeout_s, write)
        self._stream = stream
        self._call = call.id

    def peer(self) -> str:
        return "multiplexed"

    async def send_initial_metadata(self, initial_metadata: Metadata) -> None:
        self._stream.send(InitialMetadata(self._call, tuple(initial_metadata)))

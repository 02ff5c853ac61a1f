"""The calls of a multiplexed stream, at the caller. Source: docs/adr/0043."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc

from turnwright_core.kit.in_process_context import error_of, late_error
from turnwright_core.kit.message_stream import MessageStream
from turnwright_core.kit.multiplexed_frames import (
    WINDOW,
    AnswerPart,
    Call,
    CallEnd,
    Cancel,
    Frame,
    InitialMetadata,
    Pairs,
    WindowUpdate,
    batches,
)

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class MultiplexedStream:
    """An open multiplexed stream, at the caller."""

    def __init__(self, end: Callable[[], object]) -> None:
        self.ids = itertools.count(1)
        self.ends_s = math.inf
        self._end = end
        self._is_retired = False
        self._frames: list[Frame] = []
        self._woken = asyncio.Event()
        self._waiting: dict[int, _UnaryCall | StreamingCall] = {}
        self._parts: dict[int, bytearray] = {}

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

    def begin(self, call: Call, caller: _UnaryCall | StreamingCall) -> None:
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
            raise late_error() from None
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
        waiting.put(data)

    def lose(self, why: str) -> None:
        """The stream has ended, and so have its calls."""
        for call, waiting in self._waiting.items():
            kind = grpc.aio.AioRpcError if waiting.is_answered or call in self._parts else UnansweredError
            waiting.end(_failure(waiting, CallEnd(0, grpc.StatusCode.UNAVAILABLE.value[0], why), kind))
        self._waiting.clear()


class _UnaryCall:
    """A call that waits for one answer."""

    is_answered = False

    def __init__(self) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.initial: Pairs = ()

    def put(self, data: bytes) -> None:
        if not self.answer.done():
            self.answer.set_result(data)

    def end(self, error: grpc.aio.AioRpcError | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(error or error_of(grpc.StatusCode.UNKNOWN, "the call ended without an answer"))


class StreamingCall(MessageStream):
    """A call that returns a stream."""

    def __init__(
        self,
        stream: MultiplexedStream,
        call: Call,
        decoder: Callable[[bytes], Any],
        again: Callable[[UnansweredError], Awaitable[Any]],
    ) -> None:
        """Begin the call. `again` makes it as an rpc, or raises the error."""
        super().__init__(call.timeout_s)
        self.initial: Pairs = ()
        self.is_answered = False
        self._again = again
        self._rpc: Any = None
        """The same call, made again, and its messages."""
        self._stream = stream
        self._id = call.id
        self._decode = decoder
        self._taken_since = 0
        """Messages that were read since the last window update."""
        stream.begin(call, self)

    def put(self, message: bytes) -> None:
        self.is_answered = True
        super().put(message)

    def cancel(self) -> None:
        self.end(None)
        self._stream.leave(self._id)
        if self._rpc:
            self._rpc[0].cancel()

    def _taken(self) -> None:
        self._taken_since += 1
        if self._taken_since == WINDOW // 2:
            self._stream.send(WindowUpdate(self._id, self._taken_since))
            self._taken_since = 0

    async def __anext__(self) -> Any:
        if not self._rpc:
            try:
                return self._decode(await super().__anext__())
            except UnansweredError as error:
                call = await self._again(error)
            self._rpc = call, aiter(call)
        return await anext(self._rpc[1])


class UnansweredError(grpc.aio.AioRpcError):
    """The stream was lost before anything of the answer came."""


class NotBegunError(UnansweredError):
    """The service has not begun the call."""


def _failure(
    call: _UnaryCall | StreamingCall, end: CallEnd, kind: type[grpc.aio.AioRpcError] = grpc.aio.AioRpcError
) -> grpc.aio.AioRpcError | None:
    """The error of a call; None if it has none."""
    if not end.code:
        return None
    kind = NotBegunError if end.is_refused else kind
    code = _CODES.get(end.code, grpc.StatusCode.UNKNOWN)
    return kind(code, grpc.aio.Metadata(*call.initial), grpc.aio.Metadata(*end.metadata), end.details)

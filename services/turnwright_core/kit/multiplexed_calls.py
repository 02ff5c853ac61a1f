"""The calls of a multiplexed stream, at the caller. Source: docs/adr/0043."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc

from turnwright_core.kit.in_process_context import error_of
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

    def take(self, data: bytes) -> None:
        if not self.answer.done():
            self.answer.set_result(data)

    def end(self, error: grpc.aio.AioRpcError | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(error or error_of(grpc.StatusCode.UNKNOWN, "the call ended without an answer"))


class StreamingCall:
    """A call that returns a stream; iterate it, and cancel it at the end."""

    def __init__(
        self,
        stream: MultiplexedStream,
        call: Call,
        decoder: Callable[[bytes], Any],
        again: Callable[[UnansweredError], Awaitable[Any]],
    ) -> None:
        """Begin the call. `again` makes it as an rpc, or raises the error."""
        self.initial: Pairs = ()
        self.is_answered = False
        self._again = again
        self._repeated: Any = None
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
        self.is_answered = True
        self._messages.put_nowait(data)

    def end(self, error: grpc.aio.AioRpcError | None) -> None:
        """After all messages that have come."""
        self._messages.put_nowait(error)

    def cancel(self) -> None:
        if self._deadline:
            self._deadline.cancel()
        self._stream.leave(self._id)
        if self._repeated:
            self._repeated.cancel()

    async def __aiter__(self) -> AsyncIterator[Any]:
        """The messages. Raises AioRpcError if the call failed, after the messages before it."""
        taken = 0
        while isinstance(data := await self._messages.get(), bytes):
            taken += 1
            if taken == WINDOW // 2:
                self._stream.send(WindowUpdate(self._id, taken))
                taken = 0
            yield self._decode(data)
        if isinstance(data, UnansweredError):
            self._repeated = await self._again(data)
            if self._deadline:
                self._deadline.cancel()
            async for message in self._repeated:
                yield message
        elif data is not None:
            raise data


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


def _late() -> grpc.aio.AioRpcError:
    return error_of(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")

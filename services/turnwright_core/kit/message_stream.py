"""The caller's end of a call that returns a stream, where it is not grpc.aio's own: in-process or multiplexed."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Self

import grpc

from turnwright_core.kit.in_process_context import late_error


class MessageStream(ABC):
    """The messages that have come and are not read yet. Iterate it in one task, and cancel it at the end."""

    def __init__(self, timeout_s: float | None) -> None:
        """`timeout_s` is the deadline in seconds from now; None: no deadline."""
        self._unread: deque[Any] = deque()
        self._has_ended = False
        self._error: grpc.aio.AioRpcError | None = None
        self._reading: asyncio.Future[None] | None = None
        loop = asyncio.get_running_loop()
        self._deadline = None if timeout_s is None else loop.call_later(timeout_s, self._expire)

    @abstractmethod
    def cancel(self) -> None:
        """End the call."""

    def _expire(self) -> None:
        self.end(late_error())
        self.cancel()

    def put(self, message: Any) -> None:
        self._unread.append(message)
        self._wake()

    def end(self, error: grpc.aio.AioRpcError | None) -> None:
        """The end, after all messages that have come, with the error of a failed call. The first end counts."""
        if not self._has_ended:
            self._has_ended, self._error = True, error
            if self._deadline:
                self._deadline.cancel()
            self._wake()

    def _wake(self) -> None:
        if self._reading and not self._reading.done():
            self._reading.set_result(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        """The next message. Raises AioRpcError if the call failed, after the messages before it."""
        while not self._unread:
            if self._has_ended:
                raise self._error or StopAsyncIteration
            self._reading = asyncio.get_running_loop().create_future()
            await self._reading
        self._taken()
        return self._unread.popleft()

    @abstractmethod
    def _taken(self) -> None:
        """Flow control: the reader takes a message."""

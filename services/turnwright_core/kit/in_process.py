"""In-process transport: calls between services of one process, with gRPC's stubs, metadata, deadlines and errors.

A call over a socket to oneself costs a millisecond of CPU and says nothing that the process does not know. What a
handler is given here is what gRPC would give it: its own task, the caller's metadata, cancellation when the caller
leaves or its time is up. Messages are handed over as they are; neither side changes one that it has sent or received.
Source: architecture 13; ADR 9.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

import grpc
from msgspec import Struct

from turnwright_core.kit.in_process_context import LocalContext, Metadata, error_of

Neighbours = Mapping[str, "LocalServer"]
"""Servers of this process, by the address at which others reach them."""

MESSAGES_AHEAD: Final = 16
"""Messages of a stream that its reader has not taken yet; a handler that is further ahead waits."""


class _Details(grpc.HandlerCallDetails):
    """What handlers are looked up by."""

    invocation_metadata: Any = None

    def __init__(self, method: str) -> None:
        self.method = method


class LocalServer:
    """The handlers of one server, for callers of its own process."""

    def __init__(self) -> None:
        """Empty: handlers are added as they are registered with the server."""
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._calls: set[asyncio.Task[Any]] = set()
        self._is_open = False

    def add(self, *handlers: grpc.GenericRpcHandler) -> None:
        """Answer for these handlers too."""
        self._handlers += handlers

    def open(self) -> None:
        """Accept calls from now on."""
        self._is_open = True

    async def stop(self, drain_s: float) -> None:
        """Accept no call any more; those under way have so many seconds, then they are cancelled."""
        self._is_open = False
        if self._calls:
            _, late = await asyncio.wait(self._calls, timeout=drain_s)
            for call in late:
                call.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def find(self, method: str) -> Any:
        """The handler of a method. Raises AioRpcError when there is none, or none that accepts calls now."""
        if not self._is_open:
            raise error_of(grpc.StatusCode.UNAVAILABLE, "it has stopped")
        for handlers in self._handlers:
            found = handlers.service(_Details(method))
            if found:
                return found
        raise error_of(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    def begin(self, call: Coroutine[Any, Any, Any], context: LocalContext) -> asyncio.Task[Any]:
        """Run a call in a task of its own: who calls is known by the task's context."""
        task = asyncio.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._ended)
        task.add_done_callback(context.end)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            # Looked at here, so that nobody reports the error of a call whose caller has left.
            task.exception()


class LocalChannel:
    """What stubs are made with, in place of a channel to an address."""

    def __init__(self, server: LocalServer) -> None:
        """Call this server."""
        self._server = server

    def unary_unary(self, method: str, *_codecs: Any, **_more: Any) -> Callable[..., Awaitable[Any]]:
        """As a channel's."""

        async def call(request: Any, *, timeout: float | None = None, metadata: Metadata = ()) -> Any:  # noqa: ASYNC109 - as gRPC's
            handler, context = self._server.find(method), LocalContext(metadata, timeout)
            task = self._server.begin(_answered(handler.unary_unary, request, context), context)
            return await _within(timeout, task)

        return call

    def unary_stream(self, method: str, *_codecs: Any, **_more: Any) -> Callable[..., LocalStream]:
        """As a channel's."""

        def call(request: Any, *, timeout: float | None = None, metadata: Metadata = ()) -> LocalStream:
            return LocalStream(self._server, method, request, timeout, metadata)

        return call

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: ARG002 - as a channel's
        """Ready: there is nothing to connect to."""
        return grpc.ChannelConnectivity.READY

    async def close(self) -> None:
        """Nothing: calls end with their callers."""


async def _answered(handler: Callable[..., Awaitable[Any]], request: Any, context: LocalContext) -> Any:
    with context.outcome():
        return await handler(request, context)


async def _within(timeout_s: float | None, task: asyncio.Task[Any]) -> Any:
    """What a call answers in time. Raises AioRpcError; a caller that leaves or is out of time takes the call along."""
    try:
        await asyncio.wait((task,), timeout=timeout_s)
        is_late = not task.done()
    finally:
        # Nobody waits for the end of it: how a handler cleans up, or fails to, is not its caller's cancellation.
        task.cancel()
    if is_late:
        raise _late()
    if error := _failure_of(task):
        raise error
    return task.result()


class LocalStream:
    """One call that is answered by a stream; iterate it, and cancel it at the end."""

    def __init__(
        self, server: LocalServer, method: str, request: Any, timeout_s: float | None, metadata: Metadata
    ) -> None:
        """Begin the call."""
        self._messages: asyncio.Queue[Any] = asyncio.Queue()
        self._room = asyncio.Semaphore(MESSAGES_AHEAD)
        self._has_ended = False
        context = LocalContext(metadata, timeout_s)
        self._task = server.begin(self._run(server, method, request, context), context)
        self._task.add_done_callback(lambda task: self._end(_failure_of(task)))
        self._deadline: asyncio.TimerHandle | None = None
        if timeout_s is not None:
            self._deadline = asyncio.get_running_loop().call_later(timeout_s, self._expire)

    async def _run(self, server: LocalServer, method: str, request: Any, context: LocalContext) -> None:
        handler = server.find(method)
        with context.outcome():
            await self._take(handler.unary_stream(request, context))

    def _expire(self) -> None:
        self._end(_late())
        self._task.cancel()

    def _end(self, error: grpc.aio.AioRpcError | None) -> None:
        """Tell the reader, behind all messages; what ended the call first is what it hears."""
        if not self._has_ended:
            self._has_ended = True
            self._messages.put_nowait(_End(error))
            if self._deadline:
                self._deadline.cancel()

    async def _take(self, messages: AsyncGenerator[Any, None]) -> None:
        async with contextlib.aclosing(messages):
            async for message in messages:
                await self._room.acquire()
                self._messages.put_nowait(message)

    def cancel(self) -> None:
        """End the call, wherever it is."""
        self._task.cancel()

    async def __aiter__(self) -> AsyncIterator[Any]:
        """The messages; raises AioRpcError where the call failed, after what came before."""
        while not isinstance(message := await self._messages.get(), _End):
            self._room.release()
            yield message
        if message.error:
            raise message.error


class _End(Struct, frozen=True):
    """The end of a stream, and why where it failed."""

    error: grpc.aio.AioRpcError | None


def _failure_of(task: asyncio.Task[Any]) -> grpc.aio.AioRpcError | None:
    """How a call failed; None for one that did not. Handlers are guarded: they raise nothing else."""
    if task.cancelled():
        return error_of(grpc.StatusCode.CANCELLED, "the service stopped")
    error = task.exception()
    return error if isinstance(error, grpc.aio.AioRpcError) else None


def _late() -> grpc.aio.AioRpcError:
    return error_of(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")

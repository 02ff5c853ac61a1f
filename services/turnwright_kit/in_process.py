"""In-process transport: calls between services of one process, with gRPC's stubs, metadata, deadlines and errors.

A call over a socket to oneself costs a millisecond of CPU and transfers nothing that the process does not have. A
handler gets what gRPC would give it: its own task, the caller's metadata, and cancellation when the caller cancels or
its deadline passes. Messages are handed over without a copy; nobody changes one that it has sent.
Source: architecture 13; ADR 9.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NoReturn, Self, TypeVar

import grpc

from turnwright_kit.identity.caller import Caller
from turnwright_kit.scope import Metadata

# The servicer context of a call without a server of gRPC: what our guard and the handlers behind it use of gRPC's.

T = TypeVar("T")


async def _no_stream(_message: Any) -> None:
    raise NotImplementedError("it has one answer, which its handler returns")


class CallContext:
    """One call, as its handler sees it, that has not come by gRPC."""

    def __init__(
        self,
        metadata: Metadata,
        timeout_s: float | None,
        write: Callable[[Any], Awaitable[None]] | None = None,
        peer: str = "inproc",
    ) -> None:
        """`timeout_s` is the caller's deadline in seconds from now; None: no deadline. `write` sends a message."""
        self.write = write or _no_stream
        self._metadata = metadata
        self._peer = peer
        self._ends_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._failure: grpc.aio.AioRpcError | None = None

    def invocation_metadata(self) -> Metadata:
        return self._metadata

    def time_remaining(self) -> float | None:
        return None if self._ends_s is None else max(0.0, self._ends_s - time.monotonic())

    def peer(self) -> str:
        return self._peer

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """Nothing: gRPC alone tells of the certificate of a connection."""
        return {}

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> NoReturn:
        """End the call with an error. Raises AbortError, which the handler must not catch."""
        self._failure = self._failure or error_of(code, details, trailing_metadata)
        raise grpc.aio.AbortError("Locally aborted.")

    async def send_initial_metadata(self, initial_metadata: Metadata) -> None:
        """Nothing: these callers do not read it."""

    async def outcome(self, work: Awaitable[T]) -> Any:
        """What a handler returns. Raises AioRpcError if it aborted the call."""
        try:
            answer = await work
        except grpc.aio.AbortError:
            answer = None
        if self._failure:
            raise self._failure
        return answer


class LocalContext(CallContext):
    """A call of somebody in the same process, who is trusted to say who calls."""

    def __init__(
        self,
        metadata: Metadata,
        timeout_s: float | None,
        write: Callable[[Any], Awaitable[None]] | None = None,
        caller: Caller | None = None,
    ) -> None:
        """`caller`: who calls, if the channel says so."""
        super().__init__(metadata, timeout_s, write)
        self.caller = caller


def error_of(code: grpc.StatusCode, details: str, trailing: Metadata = ()) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)


def late_error() -> grpc.aio.AioRpcError:
    return error_of(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")


LocalServers = Mapping[str, "LocalServer"]
"""Servers in this process, by the address at which others reach them."""

MESSAGES_AHEAD: Final = 16
"""Flow control: unread messages of a stream; a handler that is further ahead waits."""


class CallDetails(grpc.HandlerCallDetails):
    """What handlers are looked up by."""

    def __init__(self, method: str, metadata: Any = None) -> None:
        """Without metadata, the call brings them along."""
        self.method = method
        self.invocation_metadata = metadata


class LocalServer:
    """The handlers of one server, for callers in the same process."""

    def __init__(self) -> None:
        """Empty: handlers are added as they are registered with the server."""
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._found: dict[str, object] = {}
        self._is_open = False

    def add(self, *handlers: grpc.GenericRpcHandler) -> None:
        self._handlers += handlers

    def open(self) -> None:
        self._is_open = True

    def close(self) -> None:
        """Accept no more calls."""
        self._is_open = False

    def find(self, method: str) -> Any:
        """The handler of a method. Raises AioRpcError if there is none, or if calls are not accepted now."""
        if not self._is_open:
            raise error_of(grpc.StatusCode.UNAVAILABLE, "it has stopped")
        found = self._found.get(method)
        if found is None:
            found = next(filter(None, (one.service(CallDetails(method)) for one in self._handlers)), None)
            if found is None:
                raise error_of(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
            self._found[method] = found
        return found


class LocalChannel:
    """A channel for stubs that calls a server in this process."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server

    def unary_unary(self, method: str, **_codecs: object) -> Callable[..., Awaitable[object]]:
        return self._answering(method, "unary_unary")

    def stream_unary(self, method: str, **_codecs: object) -> Callable[..., Awaitable[object]]:
        """Its request is the iterator of the messages, which the handler reads."""
        return self._answering(method, "stream_unary")

    def _answering(self, method: str, kind: str) -> Callable[..., Awaitable[object]]:
        async def call(
            request: object,
            *,
            timeout: float | None = None,  # noqa: ASYNC109 - as gRPC's
            metadata: Metadata = (),
            caller: Caller | None = None,
        ) -> object:
            handler, context = self._server.find(method), LocalContext(metadata, timeout, caller=caller)
            task = asyncio.create_task(context.outcome(getattr(handler, kind)(request, context)))
            try:
                await asyncio.wait((task,), timeout=timeout)
                error = _failure_of(task) if task.done() else late_error()
            finally:
                # Nobody waits for its end: a handler's clean-up, or its failure, is not its caller's cancellation.
                task.cancel()
            if error:
                raise error
            return task.result()

        return call

    def unary_stream(self, method: str, **_codecs: object) -> Callable[..., LocalStream]:
        def call(
            request: object, *, timeout: float | None = None, metadata: Metadata = (), caller: Caller | None = None
        ) -> LocalStream:
            return LocalStream(self._server, method, request, timeout, metadata, caller)

        return call

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: ARG002 - as a channel's
        return grpc.ChannelConnectivity.READY

    async def close(self) -> None:
        """Nothing: calls end with their callers."""


class LocalStream:
    """One call that returns a stream. Iterate it in one task, and cancel it at the end."""

    def __init__(
        self,
        server: LocalServer,
        method: str,
        request: object,
        timeout_s: float | None,
        metadata: Metadata,
        caller: Caller | None,
    ) -> None:
        """Begin the call. `timeout_s` is its deadline in seconds from now; None: no deadline."""
        self._unread: deque[object] = deque()
        self._has_ended = False
        self._error: grpc.aio.AioRpcError | None = None
        self._reading: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        loop = asyncio.get_running_loop()
        self._deadline = None if timeout_s is None else loop.call_later(timeout_s, self._expire)
        context = LocalContext(metadata, timeout_s, self._write, caller)
        self._task = asyncio.create_task(self._run(server, method, request, context))
        self._task.add_done_callback(lambda task: self._end(_failure_of(task)))

    async def _run(self, server: LocalServer, method: str, request: object, context: LocalContext) -> None:
        await context.outcome(server.find(method).unary_stream(request, context))

    async def _write(self, message: object) -> None:
        self._unread.append(message)
        self._wake()
        if len(self._unread) >= MESSAGES_AHEAD:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def _expire(self) -> None:
        self._end(late_error())
        self.cancel()

    def _end(self, error: grpc.aio.AioRpcError | None) -> None:
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

    async def __anext__(self) -> object:
        """The next message. Raises AioRpcError if the call failed, after the messages before it."""
        while not self._unread:
            if self._has_ended:
                raise self._error or StopAsyncIteration
            self._reading = asyncio.get_running_loop().create_future()
            await self._reading
        if self._room and not self._room.done():
            self._room.set_result(None)
        return self._unread.popleft()

    def cancel(self) -> None:
        self._task.cancel()


def _failure_of(task: asyncio.Task[object]) -> grpc.aio.AioRpcError | None:
    """The error of a call; None if it succeeded. Handlers are guarded: they raise nothing else."""
    if task.cancelled():
        return error_of(grpc.StatusCode.CANCELLED, "the service stopped")
    error = task.exception()
    return error if isinstance(error, grpc.aio.AioRpcError) else None

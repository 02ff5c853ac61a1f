"""Endpoints for the methods of a guarded server, and how a call by HTTP reaches the handler of one.

A caller is authenticated, and refused, by its headers alone, before its message is read. Its handler runs as under
gRPC: counted, with its deadline, and cancelled when the caller has left. What a stream sends waits until it was
written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

import grpc
from connectrpc.code import Code
from connectrpc.errors import ConnectError, ErrorDetail
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from connectrpc.request import RequestContext
from connectrpc.server import Endpoint
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2
from msgspec import Struct
from protobuf import message_from_json_value
from protobuf.wkt import Any as AnyMessage
from protobuf.wkt import Struct as JsonObject

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.limits import MESSAGE_BYTES_MAX
from turnwright_core.rpc.errors import status_of
from turnwright_kit.errors import to_status, translate
from turnwright_kit.guard import OURS, GuardedServer
from turnwright_kit.identity.caller import current_caller
from turnwright_kit.in_process import CallContext
from turnwright_kit.scope import Metadata

NOT_READ: Final = {
    Code.RESOURCE_EXHAUSTED: Reason.MESSAGE_TOO_LARGE,
    Code.INVALID_ARGUMENT: Reason.INVALID_FIELD,
    Code.UNIMPLEMENTED: Reason.INVALID_FIELD,
    Code.INTERNAL: Reason.INVALID_FIELD,
}
"""The library's own errors, all of them about messages that it cannot read."""


class HttpCall(Struct):
    """One call by HTTP."""

    method: str
    """Its path, such as `/turnwright.executor.v1.ExecutorService/Ask`."""
    metadata: Metadata
    peer: str
    length: int
    """Bytes of its body, as its headers say; 0: they do not."""
    admitted: Callable[[], None]
    """Called once its caller was let in."""
    context: Any = None
    handler: Any = None
    count: Callable[[int], None] | None = None
    """Counts bytes of its body on its caller."""
    held: int = 0
    """Bytes of its body that have come, and are held."""

    def take_in(self, size: int) -> None:
        """Hold so many bytes more. Raises ConnectError if that is too much."""
        self.held += size
        if self.count:
            try:
                self.count(size)
            except TurnwrightError as error:
                raise refusal(error) from None

    def let_go(self) -> None:
        self.take_in(-self.held)


current_call: Final[ContextVar[HttpCall]] = ContextVar("turnwright_http_call")
"""The call that is served in this task."""


def endpoints(services: Iterable[str]) -> dict[str, Any]:
    """An endpoint for each method of our services, by path."""
    pool = descriptor_pool.Default()
    names = [name for name in services if name.startswith(OURS)]
    return dict(_endpoint(method) for name in names for method in pool.FindServiceByName(name).methods)


def _endpoint(method: MethodDescriptor) -> tuple[str, Any]:
    options = method.GetOptions()
    reads = options.idempotency_level == options.NO_SIDE_EFFECTS
    kind, make = (
        (StreamType.SERVER_STREAM, lambda info: Endpoint.server_stream(info, _stream))
        if method.server_streaming
        else (StreamType.CLIENT_STREAM, lambda info: Endpoint.client_stream(info, _upload))
        if method.client_streaming
        else (StreamType.UNARY, lambda info: Endpoint.unary(info, _unary))
    )
    service = method.containing_service.full_name
    info = MethodInfo(
        name=method.name,
        service_name=service,
        input=GetMessageClass(method.input_type),
        output=GetMessageClass(method.output_type),
        idempotency_level=IdempotencyLevel.NO_SIDE_EFFECTS if reads else IdempotencyLevel.UNKNOWN,
        stream_type=kind,
    )
    return f"/{service}/{method.name}", make(info)


async def _unary(request: Any, _: object) -> Any:
    call = current_call.get()
    return await call.context.outcome(call.handler.unary_unary(request, call.context))


async def _upload(requests: AsyncIterator[Any], _: object) -> Any:
    call = current_call.get()

    async def one_by_one() -> AsyncIterator[Any]:
        async for request in requests:
            call.let_go()
            yield request

    return await call.context.outcome(call.handler.stream_unary(one_by_one(), call.context))


async def _stream(request: Any, _: object) -> AsyncGenerator[Any, None]:
    """What a handler writes, each message once the one before was sent: that is how slow readers slow it down."""
    call, loop = current_call.get(), asyncio.get_running_loop()
    came, sent = loop.create_future(), loop.create_future()

    async def write(message: Any) -> None:
        nonlocal sent
        if came.done():
            # The caller has left.
            raise asyncio.CancelledError
        sent = loop.create_future()
        came.set_result(message)
        await sent

    call.context.write = write
    task = asyncio.create_task(call.context.outcome(call.handler.unary_stream(request, call.context)))

    def ended(_: object) -> None:
        if not came.done():
            came.set_result(None)

    task.add_done_callback(ended)
    try:
        while (message := await came) is not None:
            came = loop.create_future()
            if task.done():
                came.set_result(None)
            yield message
            if not sent.done():
                sent.set_result(None)
        if task.cancelled():
            raise asyncio.CancelledError
        task.result()
    finally:
        task.cancel()
        await asyncio.wait((task,))


class Admission:
    """The library's hook around each call: before its message is read, and when it has failed."""

    def __init__(self, guarded: GuardedServer) -> None:
        self._guarded = guarded
        self.is_closed = False
        """Whether the server takes no more calls."""

    async def on_start(self, context: RequestContext[Any, Any]) -> None:
        """Find the handler. Raises ConnectError for a caller that is refused."""
        call, left_ms = current_call.get(), context.timeout_ms
        if self.is_closed:
            raise refusal(fault(Reason.DRAINING, "The service is shutting down, and this call was not done: retry."))
        call.context = CallContext(call.metadata, None if left_ms is None else left_ms / 1000, peer=call.peer)
        call.handler = self._guarded.find(call.method, call.context)
        if call.handler.stream_stream:
            try:
                await call.context.outcome(call.handler.stream_stream(None, call.context))
            except grpc.aio.AioRpcError as error:
                raise _failure(error) from None
        call.admitted()
        if call.length > MESSAGE_BYTES_MAX:
            raise refusal(_too_large(str(call.length)))
        if (caller := current_caller()).is_counted:
            call.count = partial(self._guarded.ledger.take_in, caller.name)

    async def on_end(self, _: None, __: RequestContext[Any, Any], error: Exception | None, /) -> None:
        """Raises the error that the caller is sent."""
        if isinstance(error, grpc.aio.AioRpcError):
            raise _failure(error) from None
        if isinstance(error, ConnectError):
            if (reason := NOT_READ.get(error.code)) and not error.details:
                raise refusal(_unread(reason, error.message)) from None
        elif error is not None:
            raise refusal(translate(error, current_call.get().method)) from None


def _unread(reason: Reason, message: str) -> TurnwrightError:
    if reason is Reason.MESSAGE_TOO_LARGE:
        return _too_large("more")
    return fault(reason, f"The request cannot be read: {message}.", field="message")


def _too_large(actual: str) -> TurnwrightError:
    message = (
        f"A request may have {MESSAGE_BYTES_MAX} bytes, also unpacked, and this one has {actual}: send less at once."
    )
    return fault(Reason.MESSAGE_TOO_LARGE, message, limit=MESSAGE_BYTES_MAX, actual=actual, unit="bytes")


def refusal(error: TurnwrightError) -> ConnectError:
    return _connect_error(to_status(error), error.message)


def _failure(error: grpc.aio.AioRpcError) -> ConnectError:
    """The error with which a handler has ended a call."""
    status = status_of(error)
    assert status, "the guard ends calls with a status"
    return _connect_error(status, error.details() or "")


def _connect_error(status: status_pb2.Status, message: str) -> ConnectError:
    code = Code("canceled" if status.code == 1 else grpc_name(status.code))
    return ConnectError(code, message, [_Detail(detail) for detail in status.details])


def grpc_name(number: int) -> str:
    return next(code.name.lower() for code in grpc.StatusCode if code.value[0] == number)


class _Detail(ErrorDetail):
    """An ErrorInfo of ours, which people can read in the error's JSON, too."""

    def __init__(self, detail: Any) -> None:
        super().__init__(AnyMessage(type_url=detail.type_url, value=detail.value))
        info = error_details_pb2.ErrorInfo()
        detail.Unpack(info)
        self._shown: Any = {
            "reason": info.reason, "domain": info.domain, "metadata": dict(info.metadata)
        }  # fmt: skip

    def value(self, *_: object) -> Any:
        return message_from_json_value(JsonObject, self._shown)

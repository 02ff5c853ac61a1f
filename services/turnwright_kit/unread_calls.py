"""Handlers of calls whose message has not been read: a stream handler of gRPC reads only what it asks for.

So what strangers send stays in the flow-control window of their connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

import grpc

from turnwright_core.checks import invalid
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_kit.errors import abort
from turnwright_kit.guarded_call import CallsInProgress, GuardedCall

if TYPE_CHECKING:  # generic in the stubs only
    Handler = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[object, object]
else:
    Handler = grpc.RpcMethodHandler
    Context = grpc.aio.ServicerContext

PROBES_MAX: Final = 2
"""Messages of unauthenticated callers that a service reads at a time."""

PROBE_S: Final = 5.0
"""Seconds that an unauthenticated caller has to send its message, including the wait for its turn."""

PROBE_BYTES_MAX: Final = 1024
"""Maximum length of a message without authentication, in bytes."""


def checked(request: object) -> object:
    """A request. Raises what reading it has come to."""
    if isinstance(request, TurnwrightError):
        raise request
    return request


def refusing(error: TurnwrightError, method: str, calls: CallsInProgress, principal: str = "") -> Handler:
    async def call(_requests: AsyncIterator[bytes], context: Context) -> None:
        async with GuardedCall(calls, method, context, (), is_stream=False) as guarded:
            guarded.admitted(principal, None)
            raise error

    return grpc.stream_stream_rpc_method_handler(call)


def admitting(handler: Any, admit: Callable[[Context], Any]) -> Handler:
    """A handler that admits its caller by the connection, and reads what it sends after that.

    `admit` gives the handler for this call; it is the given one, unless the caller is refused.
    """

    async def call(requests: AsyncIterator[bytes], context: Context) -> None:
        found = admit(context)
        if found is not handler:
            await found.stream_stream(requests, context)
            return
        request: Any
        if handler.request_streaming:
            request = (handler.request_deserializer(data) async for data in requests)
        else:
            sent: Any = await context.read()
            is_missing = not isinstance(sent, bytes)
            request = invalid("message", "The call has sent no message.") if is_missing else None
            request = request or handler.request_deserializer(sent)
            del sent
        if handler.response_streaming:
            await (handler.stream_stream or handler.unary_stream)(request, context)
            return
        answer = await (handler.stream_unary or handler.unary_unary)(request, context)
        try:
            await context.write(answer)
        except grpc.aio.InternalError:
            # The caller has left, with the answer unread.
            raise asyncio.CancelledError from None

    return grpc.stream_stream_rpc_method_handler(call, response_serializer=handler.response_serializer)


def probing(handler: Any, places: asyncio.Semaphore) -> Handler:
    """A handler for unauthenticated callers of open methods: one short message, sent at once, few at a time."""

    async def read(context: Context) -> object:
        try:
            async with asyncio.timeout(PROBE_S), places:
                # Not with the iterator, which would keep the message until it is garbage collected.
                sent: object = await context.read()
                data: bytes = sent if isinstance(sent, bytes) else b""
                del sent
        except TimeoutError:
            raise fault(Reason.UNAUTHENTICATED, "Send a token, or only a short message.") from None
        if (size := len(data)) > PROBE_BYTES_MAX:
            del data
            message = f"Without a token at most {PROBE_BYTES_MAX} bytes are taken."
            raise fault(Reason.LIMIT_EXCEEDED, message, field="message", limit=PROBE_BYTES_MAX, actual=size,
                        unit="bytes")  # fmt: skip
        return checked(handler.request_deserializer(data))

    async def call(_requests: AsyncIterator[bytes], context: Context) -> None:
        try:
            request = await read(context)
        except TurnwrightError as error:
            await abort(context, error)
        if handler.unary_unary:
            await context.write(await handler.unary_unary(request, context))
        else:
            await handler.unary_stream(request, context)

    return grpc.stream_stream_rpc_method_handler(call, response_serializer=handler.response_serializer)

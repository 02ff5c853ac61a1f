"""Errors on the wire: one interceptor translates for every service, one function translates back.

Source: architecture 10, 14; research/tooling 7 (uncaught exception text reaches clients unless mapped).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import grpc
import structlog
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from turnwright_core.errors import Reason, TurnwrightError, fault

DOMAIN: Final = "turnwright"

_log = structlog.get_logger("rpc")

if TYPE_CHECKING:  # generic in the stubs only
    Handler = grpc.RpcMethodHandler[Any, Any]
else:
    Handler = grpc.RpcMethodHandler
Continuation = Callable[[grpc.HandlerCallDetails], "Awaitable[Handler | None]"]


def to_status(error: TurnwrightError) -> status_pb2.Status:
    """The rich status of an error: canonical code, sentence, one ErrorInfo."""
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason=error.reason.name, domain=DOMAIN, metadata=error.metadata))
    code: int = error.code.value[0]
    return status_pb2.Status(code=code, message=error.message, details=[detail])


def from_rpc(error: grpc.aio.AioRpcError, service: str, address: str) -> TurnwrightError:
    """The error that another service meant; a transport failure becomes SERVICE_UNAVAILABLE."""
    status = rpc_status.from_call(cast("grpc.Call", error))
    for detail in status.details if status else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.domain == DOMAIN and info.reason in Reason.__members__:
            return fault(Reason[info.reason], error.details() or "", **dict(info.metadata))
    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
        return fault(
            Reason.SERVICE_UNAVAILABLE,
            f"The {service} service at {address} does not answer: {error.details() or error.code().name.lower()}",
            service=service,
            address=address,
        )
    return fault(Reason.INTERNAL, f"The {service} service failed: {error.code().name}", error_id="remote")


def _translate(error: Exception, method: str) -> TurnwrightError:
    """What a caller is told of any exception; the text of an unexpected one stays in the log, under an id."""
    if isinstance(error, TurnwrightError):
        return error
    error_id = secrets.token_hex(8)
    _log.error("rpc_failed", method=method, error_id=error_id, exc_info=error)
    return fault(Reason.INTERNAL, f"An internal error occurred. Look for {error_id} in the log.", error_id=error_id)


async def _abort(context: grpc.aio.ServicerContext[Any, Any], error: TurnwrightError) -> NoReturn:
    status: Any = rpc_status.to_status(to_status(error))
    await context.abort(status.code, status.details, status.trailing_metadata)
    raise AssertionError("abort never returns")


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Outermost: turns every exception of a handler into its status. Nothing else in a service calls abort."""

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """Wrap the handler of the call, keeping its shape; None for an unknown method, which grpc answers."""
        method = handler_call_details.method
        try:
            handler = await continuation(handler_call_details)
        except TurnwrightError as error:
            return _refusing(error)
        if handler is None:
            return None
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(
                _guard_unary(handler.unary_unary, method),
                request_deserializer=handler.request_deserializer,
                response_serializer=handler.response_serializer,
            )
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(
                _guard_stream(handler.unary_stream, method),
                request_deserializer=handler.request_deserializer,
                response_serializer=handler.response_serializer,
            )
        return handler


def _refusing(error: TurnwrightError) -> Handler:
    """A handler that refuses the call whatever its shape: for calls refused before a handler is found."""

    async def refuse(_request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        await _abort(context, error)

    return grpc.unary_unary_rpc_method_handler(refuse)


def _guard_unary(inner: Any, method: str) -> Any:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await inner(request, context)
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except Exception as error:  # noqa: BLE001 - the one place that translates whatever a handler raises
            await _abort(context, _translate(error, method))

    return call


def _guard_stream(inner: Any, method: str) -> Any:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        stream = inner(request, context)
        try:
            async for message in stream:
                yield message
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except Exception as error:  # noqa: BLE001 - the one place that translates whatever a handler raises
            await _abort(context, _translate(error, method))
        finally:
            if hasattr(stream, "aclose"):
                await stream.aclose()

    return call

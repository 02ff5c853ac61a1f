"""Errors on the wire: one function translates for every service, one translates back.

Source: architecture 10, 14; research/tooling 7 (uncaught exception text reaches clients unless mapped).
"""

from __future__ import annotations

import secrets
from typing import Any, Final, NoReturn, cast

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.kit.logs import get_logger

DOMAIN: Final = "turnwright"

_log = get_logger("rpc")


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


def translate(error: Exception, method: str) -> TurnwrightError:
    """What a caller is told of any exception; the text of an unexpected one stays in the log, under an id."""
    if isinstance(error, TurnwrightError):
        return error
    error_id = secrets.token_hex(8)
    _log.error("rpc_failed", method=method, error_id=error_id, exc_info=error)
    return fault(Reason.INTERNAL, f"An internal error occurred. Look for {error_id} in the log.", error_id=error_id)


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: TurnwrightError) -> NoReturn:
    """End a call with an error. Only the guard of all handlers calls this."""
    status: Any = rpc_status.to_status(to_status(error))
    await context.abort(status.code, status.details, status.trailing_metadata)
    raise AssertionError("abort never returns")

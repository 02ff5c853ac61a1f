"""Errors on the wire: one function translates them for every service, another one translates them back.

Source: architecture 10, 14; research/tooling 7 (uncaught exception text reaches clients unless mapped).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final, NoReturn, cast

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from turnwright_core.errors import (
    ANSWERED,
    ConflictError,
    DeadlineError,
    DeniedError,
    ExhaustedError,
    ExistsError,
    InternalError,
    InvalidError,
    MissingError,
    PreconditionError,
    RangeError,
    Reason,
    TurnwrightError,
    UnauthenticatedError,
    UnavailableError,
    fault,
)
from turnwright_kit.logs import get_logger

DOMAIN: Final = "turnwright"

STATUS_BYTES_MAX: Final = 7680
"""Maximum size of an error on the wire, in bytes: most clients drop trailers of more than 8 KiB."""

MESSAGE_BYTES_MIN: Final = 400
"""Minimum length of a truncated message, in bytes."""

_CUT: Final = "..."

NOT_OURS: Final = "remote"
"""The `error_id` of an error with an unknown reason: no log of ours has it."""

CODE_OF_CLASS: Final[dict[type[TurnwrightError], grpc.StatusCode]] = {
    InvalidError: grpc.StatusCode.INVALID_ARGUMENT,
    MissingError: grpc.StatusCode.NOT_FOUND,
    ExistsError: grpc.StatusCode.ALREADY_EXISTS,
    UnauthenticatedError: grpc.StatusCode.UNAUTHENTICATED,
    DeniedError: grpc.StatusCode.PERMISSION_DENIED,
    PreconditionError: grpc.StatusCode.FAILED_PRECONDITION,
    ConflictError: grpc.StatusCode.ABORTED,
    RangeError: grpc.StatusCode.OUT_OF_RANGE,
    ExhaustedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    UnavailableError: grpc.StatusCode.UNAVAILABLE,
    DeadlineError: grpc.StatusCode.DEADLINE_EXCEEDED,
    InternalError: grpc.StatusCode.INTERNAL,
}
"""The canonical code of every error class."""

_REFUSALS: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
"""Codes with which a proxy, or the other side's gRPC library, refuses a call itself."""

_HINTS: Final = {
    "CERTIFICATE_VERIFY_FAILED": "Its certificate has expired, or is not of an authority in TURNWRIGHT_TLS_CA.",
    "WRONG_VERSION_NUMBER": "It speaks plaintext: give it a certificate, or unset TURNWRIGHT_TLS_CA.",
    "Hostname Verification": "Its certificate does not name this host: issue one that does or set TURNWRIGHT_TLS_NAME.",
    "Socket closed": "It may expect TLS (set TURNWRIGHT_TLS_CA) or a certificate of its callers (TURNWRIGHT_TLS_CERT).",
}
"""What to do about a failed connection attempt, by words of gRPC's message."""

_log = get_logger("rpc")


def to_status(error: TurnwrightError) -> status_pb2.Status:
    """The rich status of an error: canonical code, message, one ErrorInfo.

    Long values, such as a path, are truncated until it fits: first the message, then the metadata.
    """
    message, metadata = error.message, dict(error.metadata)
    while _wire_bytes(status := _status(error, message, metadata)) > STATUS_BYTES_MAX:
        if (bytes_ := len(message.encode())) > MESSAGE_BYTES_MIN:
            message = _cut(message, max(MESSAGE_BYTES_MIN, bytes_ // 2))
            continue
        longest = max(metadata, key=lambda name: len(metadata[name].encode()), default="")
        if (bytes_ := len(metadata.get(longest, "").encode())) <= len(_CUT):
            break
        metadata[longest] = _cut(metadata[longest], bytes_ // 2)
    return status


def code_of(error: TurnwrightError) -> grpc.StatusCode:
    return CODE_OF_CLASS[type(error)]


def _status(error: TurnwrightError, message: str, metadata: Mapping[str, str]) -> status_pb2.Status:
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason=error.reason.name, domain=DOMAIN, metadata=metadata))
    code: int = code_of(error).value[0]
    return status_pb2.Status(code=code, message=message, details=[detail])


def _wire_bytes(status: status_pb2.Status) -> int:
    """Size of a status in trailers: its message percent-encoded, and the whole status once more in base64."""
    sentence: bytes = status.message.encode()
    quoted = sum(not 0x20 <= byte <= 0x7E or byte == 0x25 for byte in sentence)
    return len(sentence) + 2 * quoted + (int(status.ByteSize()) + 2) // 3 * 4


def _cut(text: str, bytes_max: int) -> str:
    data = text.encode()
    return text if len(data) <= bytes_max else data[: max(0, bytes_max - len(_CUT))].decode(errors="ignore") + _CUT


def from_rpc(error: grpc.aio.AioRpcError, service: str, address: str) -> TurnwrightError:
    """The error that another service sent; SERVICE_UNAVAILABLE if the connection or a proxy ended the call.

    Our handlers send an ErrorInfo with every error. An error without one comes from the transport: a reset is INTERNAL,
    CANCELLED or UNKNOWN, depending on who reset what, and says nothing about the call.
    """
    try:
        status = rpc_status.from_call(cast("grpc.Call", error))
    except ValueError:
        # A proxy has ended the call with another code than the service did.
        status = None
    answered = {ANSWERED: ""} if ANSWERED in (error.initial_metadata() or ()) else {}
    for detail in status.details if status else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.domain == DOMAIN and info.reason in Reason.__members__:
            values = {**info.metadata, **(answered if info.reason == Reason.DRAINING.name else {})}
            return fault(Reason[info.reason], error.details() or "", **values)
    if error.code() in _REFUSALS:
        detail = f"{error.code().name}: {error.details()}"
        return fault(Reason.INTERNAL, f"The {service} service at {address} failed: {detail}", error_id=NOT_OURS)
    return call_lost_error(service, address, _explained(error), **answered)


def _explained(error: grpc.aio.AioRpcError) -> str:
    """What gRPC says of a lost call, with a hint if the connection was not established because of TLS."""
    detail = error.details() or error.code().name.lower()
    if not detail.startswith("failed to connect"):
        return detail
    return " ".join((detail, *(hint for words, hint in _HINTS.items() if words in detail)))


def call_lost_error(service: str, address: str, detail: str, **values: str) -> TurnwrightError:
    """The error for a call that the connection or a proxy ended."""
    message = f"The {service} service at {address} does not answer: {detail}"
    return fault(Reason.SERVICE_UNAVAILABLE, message, service=service, address=address, **values)


def is_of_transport(error: TurnwrightError) -> bool:
    """Whether the transport ended the call, with an error that is not ours."""
    return error.reason is Reason.INTERNAL and error.metadata.get("error_id") == NOT_OURS


def translate(error: Exception, method: str) -> TurnwrightError:
    """The error for the caller for any exception; details of an unexpected one go to the log only, under an id."""
    if isinstance(error, TurnwrightError):
        return error
    error_id = secrets.token_hex(8)
    _log.error("rpc_failed", method=method, error_id=error_id, exc_info=error)
    return fault(Reason.INTERNAL, f"An internal error occurred. Look for {error_id} in the log.", error_id=error_id)


async def abort(context: grpc.aio.ServicerContext[object, object], error: TurnwrightError) -> NoReturn:
    """End a call with an error. Only the guard of all handlers calls this."""
    status: Any = rpc_status.to_status(to_status(error))
    await context.abort(status.code, status.details, status.trailing_metadata)
    raise AssertionError("abort never returns")

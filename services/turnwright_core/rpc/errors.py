"""Errors on the wire, as callers read them."""

from __future__ import annotations

from typing import Final

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from turnwright_core.errors import ANSWERED, Reason, TurnwrightError, fault

DOMAIN: Final = "turnwright"

STATUS: Final = "grpc-status-details-bin"
"""The trailer with the status of an error, and its details."""

NOT_OURS: Final = "remote"
"""The `error_id` of an error with an unknown reason: no log of ours has it."""

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

_STARTED: Final = "Is it running there, for instance by `turnwright serve`?"
_HINTS: Final = {
    "CERTIFICATE_VERIFY_FAILED": "Its certificate has expired, or is not of an authority in TURNWRIGHT_TLS_CA.",
    "WRONG_VERSION_NUMBER": "It speaks plaintext: give it a certificate, or unset TURNWRIGHT_TLS_CA.",
    "Hostname Verification": "Its certificate does not name this host: issue one that does or set TURNWRIGHT_TLS_NAME.",
    "Connection refused": _STARTED,
    "No such file": _STARTED,
    "Socket closed": "It may expect TLS (set TURNWRIGHT_TLS_CA) or a certificate of its callers (TURNWRIGHT_TLS_CERT).",
}
"""What to do about a failed connection attempt, by words of gRPC's message."""


def status_of(error: grpc.aio.AioRpcError) -> status_pb2.Status | None:
    """The status of a call, with its details; None if it has none, or if a proxy has ended it with another code."""
    for key, value in error.trailing_metadata() or ():
        if key == STATUS and isinstance(value, bytes):
            try:
                status = status_pb2.Status.FromString(value)
            except DecodeError:
                return None
            return status if status.code == error.code().value[0] else None
    return None


def from_rpc(error: grpc.aio.AioRpcError, service: str, address: str) -> TurnwrightError:
    """The error that another service sent; SERVICE_UNAVAILABLE if the connection or a proxy ended the call.

    Our handlers send an ErrorInfo with every error. An error without one comes from the transport: a reset is INTERNAL,
    CANCELLED or UNKNOWN, depending on who reset what, and says nothing about the call.
    """
    status = status_of(error)
    answered = {ANSWERED: ""} if ANSWERED in (error.initial_metadata() or ()) else {}
    for detail in status.details if status else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.domain == DOMAIN and info.reason in Reason.__members__:
            values = {**info.metadata, **(answered if info.reason == Reason.DRAINING.name else {})}
            return fault(Reason.__members__[info.reason], error.details() or "", **values)
    if error.code() in _REFUSALS:
        detail = f"{error.code().name}: {error.details()}"
        return fault(Reason.INTERNAL, f"The {service} service at {address} failed: {detail}", error_id=NOT_OURS)
    return call_lost_error(service, address, _explained(error), **answered)


def _explained(error: grpc.aio.AioRpcError) -> str:
    """What gRPC says of a lost call, with what to do if the connection was not established."""
    detail = error.details() or error.code().name.lower()
    if not detail.startswith(("failed to connect", "connections to all backends failing")):
        return detail
    return ". ".join((detail, *(hint for words, hint in _HINTS.items() if words in detail)))


def call_lost_error(service: str, address: str, detail: str, **values: str) -> TurnwrightError:
    """The error for a call that the connection or a proxy ended."""
    message = f"The {service} service at {address} does not answer: {detail}"
    return fault(Reason.SERVICE_UNAVAILABLE, message, service=service, address=address, **values)


def is_of_transport(error: TurnwrightError) -> bool:
    """Whether the transport ended the call, with an error that is not ours."""
    return error.reason is Reason.INTERNAL and error.metadata.get("error_id") == NOT_OURS

"""Errors on the wire: one function translates them for every service; `core.rpc.errors` translates them back.

Source: architecture 10, 14; research/tooling 7 (uncaught exception text reaches clients unless mapped).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final, NoReturn

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.rpc.errors import DOMAIN, STATUS
from turnwright_kit.logs import get_logger

STATUS_BYTES_MAX: Final = 7680
"""Maximum size of an error on the wire, in bytes: most clients drop trailers of more than 8 KiB."""

MESSAGE_BYTES_MIN: Final = 400
"""Minimum length of a truncated message, in bytes."""

_CUT: Final = "..."

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
    return grpc.StatusCode[error.code]


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


def translate(error: Exception, method: str) -> TurnwrightError:
    """The error for the caller for any exception; details of an unexpected one go to the log only, under an id."""
    if isinstance(error, TurnwrightError):
        return error
    error_id = secrets.token_hex(8)
    _log.error("rpc_failed", method=method, error_id=error_id, exc_info=error)
    return fault(Reason.INTERNAL, f"An internal error occurred. Look for {error_id} in the log.", error_id=error_id)


async def abort(context: grpc.aio.ServicerContext[object, object], error: TurnwrightError) -> NoReturn:
    """End a call with an error. Only the guard of all handlers calls this."""
    status = to_status(error)
    await context.abort(code_of(error), status.message, ((STATUS, status.SerializeToString()),))
    raise AssertionError("abort never returns")

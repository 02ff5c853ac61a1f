"""The servicer context of an in-process call: what gRPC would give its handler.

It has all of `grpc.aio.ServicerContext` that a handler behind our guard can use. `read` and `write` are for handlers
that are not generators; there are none behind the guard. Source: architecture 13; ADR 9.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import grpc

T = TypeVar("T")
Metadata = Sequence[tuple[str, str | bytes]]


class LocalContext:
    """One call, as its handler sees it."""

    def __init__(self, metadata: Metadata, timeout_s: float | None) -> None:
        self._metadata = metadata
        self._ends_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._code: grpc.StatusCode | None = None
        self._details = ""
        self._trailing: Metadata = ()
        self._is_aborted = False
        self._has_ended = False
        self._is_status_set = False
        self._callbacks: list[Callable[[Any], None]] = []

    # Who calls, and how long ---------------------------------------------------------------------------------------

    def invocation_metadata(self) -> Metadata:
        return self._metadata

    def time_remaining(self) -> float | None:
        return None if self._ends_s is None else max(0.0, self._ends_s - time.monotonic())

    def peer(self) -> str:
        return "inproc"

    def peer_identities(self) -> None:
        """None: there are no certificates within a process; the caller is in the metadata."""

    def peer_identity_key(self) -> None:
        """As peer_identities."""

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Nothing: there is no transport."""
        return {}

    # The caller's status --------------------------------------------------------------------------------------

    def set_code(self, code: grpc.StatusCode) -> None:
        """End the call with this code; any but OK is an error."""
        self._code = code

    def code(self) -> grpc.StatusCode | None:
        return self._code

    def set_details(self, details: str) -> None:
        self._details = details

    def details(self) -> str:
        return self._details

    def set_trailing_metadata(self, trailing_metadata: Metadata) -> None:
        self._trailing = trailing_metadata

    def trailing_metadata(self) -> Metadata:
        return self._trailing

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> NoReturn:
        """End the call with an error. Raises AbortError, which the handler must not catch."""
        if self._is_aborted:
            raise grpc.aio.UsageError("Abort already called!")
        self._is_aborted = True
        self._code = code
        self._details = details or self._details
        self._trailing = trailing_metadata or self._trailing
        raise grpc.aio.AbortError("Locally aborted.")

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        """End the call with an error made by `grpc_status`."""
        await self.abort(status.code, status.details, status.trailing_metadata or ())

    async def send_initial_metadata(self, initial_metadata: Metadata) -> None:
        """Nothing: none of our callers read it."""

    def set_compression(self, compression: grpc.Compression) -> None:
        """Nothing: messages are handed over without a copy."""

    def disable_next_message_compression(self) -> None:
        """As set_compression."""

    # Its end -----------------------------------------------------------------------------------------------------

    def done(self) -> bool:
        return self._is_status_set

    def cancelled(self) -> bool:
        """Whether the call ended because its caller cancelled it or its deadline passed."""
        return self._has_ended and not self._is_status_set

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    async def outcome(self, work: Awaitable[T]) -> T | None:
        """What a handler returns. Raises AioRpcError if it aborted the call or set an error code."""
        answer = None
        with contextlib.suppress(grpc.aio.AbortError, grpc.aio.UsageError):
            answer = await work
        self._is_status_set = True
        if self._code not in (None, grpc.StatusCode.OK):
            raise error_of(self._code, self._details, self._trailing)
        return answer

    def end(self, *_: Any) -> None:
        self._has_ended = True
        for callback in self._callbacks:
            # Each callback on its own: an error in one is reported by the event loop, and does not affect the others.
            asyncio.get_running_loop().call_soon(callback, self)


def error_of(code: grpc.StatusCode, details: str, trailing: Metadata = ()) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)

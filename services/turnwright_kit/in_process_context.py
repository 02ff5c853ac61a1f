"""The servicer context of a call without a server of gRPC: what our guard and the handlers behind it use of gRPC's."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import grpc

from turnwright_kit.auth import LocalIdentity
from turnwright_kit.scope import Metadata

T = TypeVar("T")


async def _no_stream(_message: Any) -> None:
    raise NotImplementedError("it has one answer, which its handler returns")


class LocalContext:
    """One call, as its handler sees it."""

    def __init__(
        self,
        metadata: Metadata,
        timeout_s: float | None,
        write: Callable[[Any], Awaitable[None]] | None = None,
        identity: LocalIdentity | None = None,
    ) -> None:
        """`timeout_s` is the caller's deadline in seconds from now; None: no deadline. `write` sends a message."""
        self.write = write or _no_stream
        self.identity = identity
        self._metadata = metadata
        self._ends_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._failure: grpc.aio.AioRpcError | None = None

    def invocation_metadata(self) -> Metadata:
        return self._metadata

    def time_remaining(self) -> float | None:
        return None if self._ends_s is None else max(0.0, self._ends_s - time.monotonic())

    def peer(self) -> str:
        return "inproc"

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> NoReturn:
        """End the call with an error. Raises AbortError, which the handler must not catch."""
        self._failure = self._failure or error_of(code, details, trailing_metadata)
        raise grpc.aio.AbortError("Locally aborted.")

    async def send_initial_metadata(self, initial_metadata: Metadata) -> None:
        """Nothing: callers in the same process do not read it."""

    async def outcome(self, work: Awaitable[T]) -> Any:
        """What a handler returns. Raises AioRpcError if it aborted the call."""
        try:
            answer = await work
        except grpc.aio.AbortError:
            answer = None
        if self._failure:
            raise self._failure
        return answer


def error_of(code: grpc.StatusCode, details: str, trailing: Metadata = ()) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)


def late_error() -> grpc.aio.AioRpcError:
    return error_of(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")

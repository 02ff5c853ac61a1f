"""`grpc.health.v1` of one server: what `Check` and `List` say at once, `Watch` says whenever it changes.

The library's own `Watch` writes to the context of its call instead of giving messages, which the guard of our handlers
does not know, and keeps the stream open until the server has waited for it in vain.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

if TYPE_CHECKING:  # generic in the stubs only
    Context = grpc.aio.ServicerContext[Any, Any]
else:
    Context = grpc.aio.ServicerContext

Response: Final = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # the library has no types
    """Whether a server serves, for the server as a whole (the empty name) and for its service by name."""

    def __init__(self, service: str) -> None:
        """Know this service, which does not serve yet."""
        self._names = frozenset(("", service))
        self._status = Response.NOT_SERVING
        self._has_ended = False
        self._changed = asyncio.Event()

    def set(self, *, serving: bool) -> None:
        """Say from now on that the service serves, or that it does not."""
        self._status = Response.SERVING if serving else Response.NOT_SERVING
        self._tell()

    def end(self) -> None:
        """End every watch, once it has told the latest."""
        self._has_ended = True
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def Check(  # noqa: N802 - the protocol's name
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """The status now; NOT_FOUND for another service's name, as the protocol has it."""
        if request.service not in self._names:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"There is no service {request.service} here.")
        return Response(status=self._status)

    async def List(  # noqa: N802 - the protocol's name
        self, _request: health_pb2.HealthListRequest, _context: Context
    ) -> health_pb2.HealthListResponse:
        """The status of every name."""
        return health_pb2.HealthListResponse(statuses={name: Response(status=self._status) for name in self._names})

    async def Watch(  # noqa: N802 - the protocol's name
        self, request: health_pb2.HealthCheckRequest, _context: Context
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """The status now and each time it changes; SERVICE_UNKNOWN for another service's name."""
        told = None
        while True:
            changed = self._changed
            status = self._status if request.service in self._names else Response.SERVICE_UNKNOWN
            if status != told:
                yield Response(status=status)
                told = status
            if self._has_ended:
                return
            await changed.wait()

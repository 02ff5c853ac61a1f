"""`grpc.health.v1` of one server: `Check` and `List` return the current status, `Watch` streams its changes.

The library's own `Watch` writes to the context of its call instead of yielding messages, which our guard does not
support, and keeps the stream open until the server has waited for it in vain.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from turnwright.settings.v1 import settings_service_pb2, settings_service_pb2_grpc

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_kit.peer import Peer

if TYPE_CHECKING:  # generic in the stubs only
    Context = grpc.aio.ServicerContext[object, object]
else:
    Context = grpc.aio.ServicerContext

CheckResponse: Final = health_pb2.HealthCheckResponse


LIVENESS: Final = "liveness"
"""The service name for liveness: whether the process works, regardless of its dependencies."""

CHECK_S_MAX: Final = 2.0
"""Timeout for the readiness check of another service, in seconds."""


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # the library has no types
    """Readiness of a server (the empty name, and its service's), of its dependencies, and its liveness (`liveness`).

    A process that lost its database should get no calls, but should not be killed for that either.
    """

    def __init__(self, service: str) -> None:
        self._own: tuple[str, ...] = ("", service)
        self._statuses = dict.fromkeys(self._own, CheckResponse.NOT_SERVING)
        self._statuses[LIVENESS] = CheckResponse.SERVING
        self._why: dict[str, str] = {}
        self._has_ended = False
        self._changed = asyncio.Event()

    def add(self, services: Iterable[str]) -> None:
        """Report these services of the server, too: they are as ready as it is."""
        self._own = (*self._own, *(name for name in services if name not in self._statuses))
        self._statuses |= dict.fromkeys(self._own, self._statuses[""])

    def set(self, *, ready: bool) -> None:
        self._set(self._own, ready=ready)

    def set_dependency(self, name: str, *, ready: bool, why: str = "") -> None:
        """Set whether a service that this one calls is ready, as seen from here, and one word why not."""
        self._why[name] = why
        self._set((name,), ready=ready)

    def _set(self, names: Iterable[str], *, ready: bool) -> None:
        self._statuses.update(dict.fromkeys(names, CheckResponse.SERVING if ready else CheckResponse.NOT_SERVING))
        self._notify()

    async def problem(self) -> str:
        """Why the service is not ready; empty if it is."""
        names = [name for name in self._statuses if name not in ("", *self._own[2:])]
        names = [name for name in names if self._statuses[name] != CheckResponse.SERVING]
        away = [f"{name} ({self._why[name]})" if self._why.get(name) else name for name in names]
        return f"not ready: {', '.join(away)}" if self._statuses[""] != CheckResponse.SERVING else ""

    def leave(self) -> None:
        self._statuses = dict.fromkeys(self._statuses, CheckResponse.NOT_SERVING)
        self._notify()

    def end(self) -> None:
        """End every watch, after it has sent the latest status."""
        self._has_ended = True
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def Check(  # noqa: N802 - the protocol's name
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        """The current status; NOT_FOUND for another service's name, as the protocol requires."""
        if request.service not in self._statuses:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"There is no service {request.service} here.")
        return CheckResponse(status=self._statuses[request.service])

    async def List(  # noqa: N802 - the protocol's name
        self, _request: health_pb2.HealthListRequest, _context: Context
    ) -> health_pb2.HealthListResponse:
        listed = {name: CheckResponse(status=status) for name, status in self._statuses.items()}
        return health_pb2.HealthListResponse(statuses=listed)

    async def Watch(  # noqa: N802 - the protocol's name
        self, request: health_pb2.HealthCheckRequest, _context: Context
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """The current status and each change; SERVICE_UNKNOWN for another service's name."""
        sent = None
        while True:
            changed = self._changed
            status = self._statuses.get(request.service, CheckResponse.SERVICE_UNKNOWN)
            if status != sent:
                yield CheckResponse(status=status)
                sent = status
            if self._has_ended:
                return
            await changed.wait()


_TAKEN: Final[WeakSet[Peer]] = WeakSet()
"""Services that have taken our token since they were ready last: asked once, because each call has a line in logs."""


async def check_ready(peer: Peer) -> None:
    """Check the readiness of another service, and that it takes our token: health is told to anybody.

    Raises SERVICE_UNAVAILABLE if it is not ready or does not answer, UNAUTHENTICATED.
    """
    try:
        await _check_serving(peer)
    except TurnwrightError:
        _TAKEN.discard(peer)
        raise
    if peer not in _TAKEN:
        await _check_token(peer)
        _TAKEN.add(peer)


async def _check_token(peer: Peer) -> None:
    stub = settings_service_pb2_grpc.SettingsServiceStub(peer.channel)
    try:
        await peer.call(stub.GetSettings, settings_service_pb2.GetSettingsRequest(), CHECK_S_MAX)
    except TurnwrightError as error:
        # A service of another make need not have this call.
        if error.reason is Reason.UNAUTHENTICATED:
            message = (
                f"{error.reason.name}: the {peer.name} at {peer.address} does not take this service's token: give both "
                "the same TURNWRIGHT_TOKEN, or the same file `token` in their homes."
            )
            raise fault(error.reason, message) from None


async def _check_serving(peer: Peer) -> None:
    stub = health_pb2_grpc.HealthStub(peer.channel)
    answer = await peer.call(stub.Check, health_pb2.HealthCheckRequest(), CHECK_S_MAX)
    if answer.status != CheckResponse.SERVING:
        message = f"The {peer.name} at {peer.address} is not ready."
        raise fault(Reason.SERVICE_UNAVAILABLE, message, service=peer.name, address=peer.address)

"""What a service is to whatever serves it: a server, or callers in the same process alone."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from grpc_health.v1 import health_pb2_grpc
from msgspec import Struct, field
from turnwright.settings.v1 import settings_service_pb2_grpc
from turnwright_values.types import Tier

from turnwright_core.rpc_codec import Codecs
from turnwright_kit.guard import GuardedServer
from turnwright_kit.guarded_call import CallsInProgress
from turnwright_kit.health import Health
from turnwright_kit.identity.gate import CallerGate
from turnwright_kit.identity.policy import Policy
from turnwright_kit.in_process import LocalServer
from turnwright_kit.refusals import Refusals
from turnwright_kit.settings import HttpPort, Settings
from turnwright_kit.settings_report import SettingsReporter

if TYPE_CHECKING:
    import grpc


async def _nothing() -> None:
    """The default of a hook that is awaited."""


def _ignore(*_: object) -> None:
    """The default of a hook that is not awaited."""


class Service(Struct, frozen=True):
    """What a service passes to its server. Hooks run in the order start, listening, leave, drain, close."""

    name: str
    """`store`, `assembler`, `provider` or `executor`."""
    grpc_name: str
    """Full name of its gRPC service."""
    register: Callable[[grpc.aio.Server], None]
    """Adds the servicer."""
    floor: Tier = Tier.CLIENT
    """The lowest tier that may call the service."""
    start: Callable[[], Awaitable[None]] = _nothing
    """Runs before the first call is accepted."""
    leave: Callable[[], None] = _ignore
    """Runs once the service reports NOT_SERVING, and once more before it is drained: it looks for no more work."""
    drain: Callable[[], Awaitable[None]] = _nothing
    """Runs when no new calls are accepted: finishes the calls in progress."""
    close: Callable[[], Awaitable[None]] = _nothing
    """Runs after the last call."""
    listening: Callable[[str], None] = _ignore
    """Receives the actual address, after the start, right before the first call is accepted."""
    ready: Callable[[], Awaitable[None]] | None = None
    """Readiness check: raises TurnwrightError if a dependency is unavailable. None: only dependencies, if any."""
    dependencies: Mapping[str, Callable[[], Awaitable[None]]] = {}
    """Readiness checks of the services that this one calls, by name. It is not ready without the first of them."""
    connection_calls_max: int = 1000
    """Calls under way on one connection; a caller that opens more waits."""
    settings: Settings | None = None
    """The settings of the service, for its settings report."""
    policy: Policy | None = None
    """Who may do what. None: nobody but the services of the deployment has a right."""
    refusals: Refusals = field(default_factory=Refusals)
    """What its server refuses."""
    codecs: Callable[[], Codecs] | None = None
    """The rpcs whose handlers take and return values. None: there are none."""

    http: HttpPort | None = None
    """None: it serves gRPC alone."""

    def register_all(self, server: Any, health: Health) -> None:
        """Register the servicer, with those of health and settings."""
        self.register(server)
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        if self.settings is not None:
            settings_service_pb2_grpc.add_SettingsServiceServicer_to_server(SettingsReporter(self.settings), server)


class LocalService:
    """A service that only callers in this process reach: it listens nowhere."""

    def __init__(self, service: Service, secret: str, drain_s: float) -> None:
        """Prepare. `drain_s` is the time that calls have at the end."""
        self.local = LocalServer()
        self._calls = CallsInProgress(service.refusals)
        self._service = service
        self._secret = secret
        self._drain_s = drain_s

    async def start(self) -> None:
        await self._service.start()
        gate, health = (
            CallerGate(self._service.name, (self._secret,), self._service.floor),
            Health(self._service.grpc_name),
        )
        health.set(ready=True)
        service = self._service
        guarded = GuardedServer(None, self.local, gate, self._calls, service.codecs, policy=service.policy)
        service.register_all(guarded, health)
        self.local.open()

    async def stop(self) -> None:
        async with contextlib.AsyncExitStack() as steps:
            # In reverse order: a step that fails does not prevent the others.
            steps.push_async_callback(self._service.close)
            steps.push_async_callback(self._calls.ended, self._drain_s)
            steps.callback(self.local.close)
            steps.push_async_callback(self._service.drain)

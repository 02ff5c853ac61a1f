"""A gRPC server of ours: guarded handlers, health, reflection, drain. All four services run on it, alone or together.

Source: architecture 13; research/tooling 7.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc
from msgspec import Struct
from turnwright.settings.v1 import settings_service_pb2, settings_service_pb2_grpc

from turnwright_core.entries import Tier
from turnwright_core.kit.auth import Authenticator
from turnwright_core.kit.guard import CallsUnderWay, GuardedServer
from turnwright_core.kit.health import Health
from turnwright_core.kit.in_process import LocalServer
from turnwright_core.kit.logs import get_logger
from turnwright_core.kit.readiness import Readiness
from turnwright_core.kit.settings import Settings
from turnwright_core.kit.settings_report import ShownSettings
from turnwright_core.limits import MESSAGE_BYTES_MAX

SERVER_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # Clients ping every 30 s; the default of five minutes would end their connections with "too many pings".
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Two processes on one port would share its calls by chance.
    ("grpc.so_reuseport", 0),
)

STOP_S_MORE: Final = 5.0
"""Seconds beyond `drain_s` that a step of stopping may take."""

END_S: Final = 1.0
"""Seconds that calls which are late have to hear that they are ended, beyond `drain_s`."""

GOAWAY_GRACE_S: Final = 0.25
"""Seconds between telling clients to connect elsewhere and ending their streams.

A connection on which the last stream ends while its client is writing is closed under that, and the client then hears
of a broken pipe instead of why its stream ended. Clients answer the request to leave at once, and those of gRPC measure
the connection a tenth of a second after a message.
"""

_log = get_logger("server")


async def _nothing() -> None:
    """Do nothing: the default of a service's hooks."""


def _take_no_notice(_address: str) -> None:
    """Do nothing with an address."""


class Service(Struct, frozen=True):
    """What a service gives to its server. Hooks run in the order start, listening, drain, close."""

    name: str
    """`store`, `assembler`, `provider` or `executor`."""
    grpc_name: str
    """Full name of its gRPC service."""
    register: Callable[[grpc.aio.Server], None]
    """Adds the servicer."""
    floor: Tier = Tier.CLIENT
    """The lowest tier that has any business here."""
    start: Callable[[], Awaitable[None]] = _nothing
    """Runs before the first call is accepted."""
    drain: Callable[[], Awaitable[None]] = _nothing
    """Runs when no new call is accepted: brings calls under way to their end."""
    close: Callable[[], Awaitable[None]] = _nothing
    """Runs after the last call."""
    listening: Callable[[str], None] = _take_no_notice
    """Told the address with its port, after the start, right before the first call is accepted."""
    ready: Callable[[], Awaitable[None]] | None = None
    """Looks whether the service can do its work now: raises TurnwrightError where what it needs is away.

    None: it needs nothing but itself.
    """
    settings: Settings | None = None
    """What it was made with, for those who ask how it is set up."""


class RunningServer:
    """One service that listens on one address."""

    def __init__(
        self,
        service: Service,
        address: str,
        secret: str,
        drain_s: float,
        observers: Sequence[grpc.aio.ServerInterceptor] = (),
        stop_s_more: float = STOP_S_MORE,
    ) -> None:
        """Prepare. `drain_s` are the seconds that calls have when it stops; observers see those of a network."""
        self.service = service
        self.address = address
        self._wanted = address
        self._secret = secret
        self._observers = observers
        self._drain_s = drain_s
        self._step_s_max = drain_s + stop_s_more
        self._health = Health(service.grpc_name)
        self._server: grpc.aio.Server | None = None
        self._calls = CallsUnderWay()
        self._readiness = Readiness(service.name, service.ready, self._health)
        self.local = LocalServer()
        """The same handlers for callers of this process."""

    async def start(self) -> None:
        """Start the service, then listen. Raises OSError when the address cannot be bound."""
        await self.service.start()
        server = grpc.aio.server(interceptors=self._observers, options=SERVER_OPTIONS)
        guarded: Any = GuardedServer(server, self.local, Authenticator(self._secret, self.service.floor), self._calls)
        self.service.register(guarded)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, guarded)
        names = [self.service.grpc_name, health.SERVICE_NAME, reflection.SERVICE_NAME]
        if self.service.settings is not None:
            shown = ShownSettings(self.service.settings)
            settings_service_pb2_grpc.add_SettingsServiceServicer_to_server(shown, guarded)
            names.append(settings_service_pb2.DESCRIPTOR.services_by_name["SettingsService"].full_name)
        # What `enable_server_reflection` does, which takes no server but grpc's own.
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflection.aio.ReflectionServicer(names), guarded)
        try:
            port = server.add_insecure_port(self._wanted)
        except RuntimeError:
            await self.service.close()
            raise OSError(
                f"The {self.service.name} cannot listen on {self._wanted}: something else listens there, or it is not "
                f"an address of this host. Choose another one with --listen {self.service.name}=HOST:PORT."
            ) from None
        if self._wanted.endswith(":0"):
            self.address = f"{self._wanted[:-2]}:{port}"
        self.service.listening(self.address)
        await server.start()
        self.local.open()
        self._server = server
        await self._readiness.begin()
        _log.info("service_started", service=self.service.name, address=self.address)

    async def leave(self) -> None:
        """Say that the service stops soon; calls are served as before."""
        await self._readiness.end()
        self._health.leave()

    async def stop(self) -> None:
        """Drain and close: health first, then no new calls, then the calls under way, then the service."""
        if self._server is None:
            return
        server, self._server = self._server, None
        await self.leave()
        # What is late is ended by us, who can say why; gRPC's own end is CANCELLED.
        overdue = asyncio.get_running_loop().call_later(self._drain_s, self._calls.end)
        grace_s = self._drain_s + END_S
        stopping = asyncio.gather(server.stop(grace_s), self.local.stop(grace_s))
        if self._calls.streams:
            await asyncio.sleep(min(GOAWAY_GRACE_S, self._drain_s))
        self._health.end()
        async with contextlib.AsyncExitStack() as steps:
            # The last one first: a step that fails keeps none of those after it from being taken.
            steps.push_async_callback(self._in_time, "close", self.service.close)
            steps.push_async_callback(self._in_time, "stop", lambda: stopping)
            steps.push_async_callback(self._in_time, "drain", self.service.drain)
        overdue.cancel()
        _log.info("service_stopped", service=self.service.name)

    async def _in_time(self, step: str, work: Callable[[], Awaitable[Any]]) -> None:
        """A step of stopping; one that hangs is left behind, because whoever stops a service waits for its end."""
        try:
            async with asyncio.timeout(self._step_s_max):
                await work()
        except TimeoutError:
            tasks = sorted(task.get_name() for task in asyncio.all_tasks())
            _log.error("stop_delayed", service=self.service.name, step=step, tasks=tasks)


def stop_signal() -> asyncio.Future[int]:
    """Which of SIGTERM and SIGINT has come; a second signal ends the process at once."""
    loop = asyncio.get_running_loop()
    came: asyncio.Future[int] = loop.create_future()

    def on_signal(number: int) -> None:
        if came.done():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        came.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return came


async def serve_until_stopped(*servers: RunningServer, lame_duck_s: float = 0.0) -> None:
    """Start the servers in order, wait for a signal, stop them in reverse order.

    After SIGTERM they go on serving for `lame_duck_s` and say that they stop, so that no new calls come when they do.
    """
    came = stop_signal()
    async with contextlib.AsyncExitStack() as stack:
        for server in servers:
            await server.start()
            stack.push_async_callback(server.stop)
        if await came == signal.SIGTERM:
            await leave(servers, lame_duck_s)


async def leave(servers: Iterable[RunningServer], lame_duck_s: float) -> None:
    """Have servers say that they stop, and wait so long that load balancers have heard of it."""
    for server in servers:
        await server.leave()
    await asyncio.sleep(lame_duck_s)

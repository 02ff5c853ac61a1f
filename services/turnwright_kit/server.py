"""The gRPC server of every service: guarded handlers, health, reflection, graceful shutdown.

Source: architecture 13; research/tooling 7.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection, reflection_pb2

from turnwright_core.batching import next_poll_in_s
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.limits import MESSAGE_BYTES_MAX
from turnwright_core.rpc.transport import PLAINTEXT
from turnwright_kit.access import UndeclaredAccessError
from turnwright_kit.event_loop import report_lag
from turnwright_kit.guard import OURS, GuardedServer
from turnwright_kit.guarded_call import CallsInProgress
from turnwright_kit.health import Health
from turnwright_kit.identity.gate import CallerGate
from turnwright_kit.identity.identity_file import IdentitySettings
from turnwright_kit.identity.peers import Peers
from turnwright_kit.in_process import LocalServer
from turnwright_kit.logs import get_logger
from turnwright_kit.pages import report_readiness
from turnwright_kit.service import Service
from turnwright_kit.telemetry import count, observe
from turnwright_kit.telemetry_names import CERTIFICATE_EXPIRY, CERTIFICATES_REFUSED
from turnwright_kit.transport import listen

if TYPE_CHECKING:
    from turnwright_kit.http.listener import HttpListener
    from turnwright_kit.identity.issuers import Issuers

# Readiness polling: checks repeatedly whether a service can do its work, and sets its health.

EVERY_S: Final = 2.0
"""Seconds between readiness checks."""

FAILED_LOOKS: Final = 2
"""Consecutive failed checks after which a ready service is reported as not ready.

One late answer only means a busy moment, and a deployment that leaves because it is busy serves nobody.
"""

LOOK_S_MAX: Final = 5.0
"""Timeout of one check in seconds; a service that hangs is not ready."""

FIRST_LOOK_S: Final = 1.0
"""Seconds that the start waits for the first check, so that a ready service reports it from its first call on."""


class Readiness:
    """The readiness checks of one service."""

    def __init__(
        self,
        name: str,
        ready: Callable[[], Awaitable[None]] | None,
        health: Health,
        dependencies: Mapping[str, Callable[[], Awaitable[None]]] | None = None,
        *,
        every_s: float = EVERY_S,
        look_s_max: float = LOOK_S_MAX,
    ) -> None:
        """`ready` raises if the service cannot do its work, and each check of a dependency if that one cannot.

        Without `ready`, the service is ready if its first dependency is, and always if it has none. Times are in
        seconds.
        """
        self._name = name
        self._dependencies = dict(dependencies or {})
        self._needed = next(iter(self._dependencies), "") if ready is None else ""
        self._ready = ready or self._dependencies.pop(self._needed, None)
        self._health = health
        self._every_s = every_s
        self._look_s_max = look_s_max
        self._tasks: list[asyncio.Task[None]] = []
        self._has_looked = asyncio.Event()

    async def begin(self) -> None:
        looks = [(name, self._report(name, check)) for name, check in self._dependencies.items()]
        if self._ready:
            looks.append((self._needed, self._look(self._ready)))
        self._tasks = [asyncio.create_task(look, name=f"readiness {self._name} {name}") for name, look in looks]
        if not self._ready:
            self._health.set(ready=True)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_S):
                await self._has_looked.wait()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _report(self, name: str, check: Callable[[], Awaitable[None]]) -> None:
        while True:
            problem = await self._problem(check)
            self._health.set_dependency(name, ready=not problem, why=_word(problem))
            await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(next_poll_in_s(asyncio.get_running_loop().time(), self._every_s))

    async def _look(self, ready: Callable[[], Awaitable[None]]) -> None:
        before: bool | None = None
        failed = 0
        while True:
            problem = await self._problem(ready)
            if self._needed:
                self._health.set_dependency(self._needed, ready=not problem, why=_word(problem))
            failed = failed + 1 if problem else 0
            is_ready = not problem or (before is True and failed < FAILED_LOOKS)
            if is_ready is not before:
                if not is_ready:
                    _log.warning("readiness_lost", service=self._name, problem=problem)
                elif before is False:
                    _log.info("readiness_regained", service=self._name)
                before = is_ready
                self._health.set(ready=is_ready)
            self._has_looked.set()
            await self._pause()

    async def _problem(self, ready: Callable[[], Awaitable[None]]) -> str:
        try:
            async with asyncio.timeout(self._look_s_max):
                await ready()
        except TurnwrightError as error:
            return error.message
        except TimeoutError:
            return f"what it needs did not answer within {self._look_s_max:g} s"
        except Exception as error:  # noqa: BLE001 - a look that fails in any way must not be the last one
            return f"{type(error).__name__}: {error}"
        return ""


def _word(problem: str) -> str:
    """The reason with which a problem begins; empty if it has none."""
    word = problem.partition(":")[0]
    return word if word in Reason.__members__ else ""


# Reflection, under both of its names: `grpc.reflection.v1` and `v1alpha`, which have the same messages.
#
# The library has v1alpha only, and finds no methods, which the protocol allows to ask for (`package.service.method`).

V1ALPHA: Final = reflection.SERVICE_NAME
V1: Final = V1ALPHA.replace("v1alpha", "v1")


def reflection_handlers(services: Sequence[str]) -> tuple[grpc.GenericRpcHandler, ...]:
    """Handlers that tell of these services, and of themselves."""
    servicer = reflection.aio.ReflectionServicer((*services, V1ALPHA, V1), pool=_Descriptors())
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return tuple(
        grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": handler}) for name in (V1ALPHA, V1)
    )


class _Descriptors:
    """What the library asks of a pool: the one of this process, then one with the later name of reflection."""

    def __init__(self) -> None:
        self._pools = (descriptor_pool.Default(), _pool_of_v1())

    def __getattr__(self, name: str) -> object:
        return lambda *given: self._first(lambda pool: getattr(pool, name)(*given))

    def FindFileContainingSymbol(self, name: str) -> object:  # noqa: N802 - the library's name
        try:
            return self._first(lambda pool: pool.FindFileContainingSymbol(name))
        except KeyError:
            return self._first(lambda pool: pool.FindMethodByName(name)).containing_service.file

    def _first(self, find: Callable[[Any], object]) -> Any:
        """What the first pool finds that has it. Raises KeyError."""
        *others, last = self._pools
        for pool in others:
            try:
                return find(pool)
            except KeyError:
                continue
        return find(last)


def _pool_of_v1() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(file)
    file.name, file.package = (text.replace("v1alpha", "v1") for text in (file.name, file.package))
    for message in file.message_type:
        for field in (one for one in message.field if one.type_name):
            field.type_name = field.type_name.replace("v1alpha", "v1")
    for rpc in file.service[0].method:
        rpc.input_type, rpc.output_type = (name.replace("v1alpha", "v1") for name in (rpc.input_type, rpc.output_type))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


SERVER_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # Clients ping every 30 s; the default minimum of five minutes would end their connections with "too many pings".
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Clients of `dns:///` names then connect anew, and find replicas that have been added. Calls in progress go on.
    ("grpc.max_connection_age_ms", 600_000),
    # A token of an issuer can name hundreds of groups. Above the first of these gRPC refuses by chance.
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.absolute_max_metadata_size", 24 * 1024),
    # Two processes on one port would share its calls by chance.
    ("grpc.so_reuseport", 0),
)

STOP_S_MORE: Final = 5.0
"""Seconds beyond `drain_s` that one step of the shutdown may take."""

END_S: Final = 1.0
"""Seconds beyond `drain_s` that late calls have to receive the error that ends them."""

GOAWAY_GRACE_S: Final = 0.25
"""Seconds between sending GOAWAY, which tells clients to connect elsewhere, and ending their streams.

If the last stream of a connection ends while its client is writing, the connection is closed under it, and the client
sees a broken pipe instead of the reason. Clients react to GOAWAY at once, and gRPC's own measure the connection a tenth
of a second after a message.
"""

_log = get_logger("server")


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
        look_every_s: float = EVERY_S,
    ) -> None:
        """Prepare. `drain_s` is the time that calls have at shutdown; observers see network calls only."""
        self.service = service
        self.address = address
        self._wanted = address
        self._secret = secret
        self._observers = observers
        self._drain_s = drain_s
        self._step_s_max = drain_s + stop_s_more
        self._health = Health(service.grpc_name)
        self._tls = service.settings.tls if service.settings else PLAINTEXT
        self._server: grpc.aio.Server | None = None
        self._calls = CallsInProgress(service.refusals)
        self._issuers: Issuers | None = None
        self.http: HttpListener | None = None
        """Where it serves HTTP, if it does."""
        self._readiness = Readiness(
            service.name, service.ready, self._health, service.dependencies, every_s=look_every_s
        )
        self.local = LocalServer()
        """The same handlers for callers in this process."""

    async def start(self) -> None:
        """Start the service, then listen. Raises OSError if the address cannot be bound, UndeclaredAccessError."""
        settings = self.service.settings
        identities = settings.identities() if settings else IdentitySettings()
        peers = Peers(identities) if identities.peer else None
        await self.service.start()
        if identities.issuer:
            from turnwright_kit.identity.issuers import Issuers  # noqa: PLC0415 - loads an HTTP client

            self._issuers = Issuers(identities.issuer)
            await self._issuers.start()
        options = (*SERVER_OPTIONS, ("grpc.max_concurrent_streams", self.service.connection_calls_max))
        server = grpc.aio.server(interceptors=self._observers, options=options)
        keys = settings.token_keys if settings else ()
        secrets = (self._secret, *(settings.secrets_accepted if settings else ()))
        gate = CallerGate(self.service.name, secrets, self.service.floor, keys, self._issuers, peers)
        limits = settings.caller_limits if settings else None
        guarded: Any = GuardedServer(
            server, self.local, gate, self._calls, self.service.codecs, limits, self.service.policy
        )
        try:
            self.service.register_all(guarded, self._health)
        except UndeclaredAccessError:
            await self.service.close()
            raise
        self._health.add(name for name in guarded.names if name.startswith(OURS))
        guarded.add_generic_rpc_handlers(reflection_handlers(guarded.names))
        try:
            port = listen(server, self._wanted, self._tls)
            self.http = self._http_port(guarded)
        except (TurnwrightError, OSError):
            await self.service.close()
            raise
        except RuntimeError:
            await self.service.close()
            raise OSError(
                f"The {self.service.name} cannot listen on {self._wanted}: something else listens there, or it is not "
                f"an address of this host. Choose another one with --listen {self.service.name}=HOST:PORT."
            ) from None
        if self._wanted.endswith(":0"):
            self.address = f"{self._wanted[:-2]}:{port}"
        self.service.listening(self.address)
        self._measure_certificate()
        report_lag(asyncio.get_running_loop())
        report_readiness(self.service.name, partial(self._problem, asyncio.get_running_loop()))
        await server.start()
        if self.http:
            await self.http.start()
        self.local.open()
        self._server = server
        _log.info("service_started", service=self.service.name, address=self.address)
        try:
            await self._readiness.begin()
        except asyncio.CancelledError:
            await self.stop()
            raise

    def _http_port(self, guarded: GuardedServer) -> HttpListener | None:
        """Bind the port for HTTP, if there is to be one. Raises OSError, TurnwrightError."""
        if not (port := self.service.http):
            return None
        from turnwright_kit.http.door import Door  # noqa: PLC0415 - with libraries that gRPC does not need
        from turnwright_kit.http.listener import HttpListener  # noqa: PLC0415

        door = Door(guarded, port)
        try:
            return HttpListener(door, port.address, self._tls)
        except OSError as error:
            raise OSError(
                f"The {self.service.name} cannot serve HTTP on {port.address}: {error.strerror}. Choose another "
                "address with TURNWRIGHT_HTTP_LISTEN=HOST:PORT, or none with TURNWRIGHT_HTTP_LISTEN= ."
            ) from None

    def _problem(self, loop: asyncio.AbstractEventLoop) -> str:
        """Why it is not ready, for another thread. A loop that does not answer is a reason, too."""
        try:
            return asyncio.run_coroutine_threadsafe(self._health.problem(), loop).result(LOOK_S_MAX)
        except (RuntimeError, TimeoutError):
            return f"it did not answer within {LOOK_S_MAX:g} s"

    def _measure_certificate(self) -> None:
        if self._tls.has_certificate:
            # A counter that begins with its first event would hide that event from `increase()` of Prometheus.
            count(CERTIFICATES_REFUSED, 0)
            labels = {"service": self.service.name}
            observe(CERTIFICATE_EXPIRY, lambda: self._tls.current().expiry_s - time.time(), labels)

    async def leave(self) -> None:
        await self._readiness.end()
        self._health.leave()
        self.service.leave()

    async def stop(self) -> None:
        """Shut down: health first, then no new calls, then the calls in progress, then the service."""
        if self._server is None:
            return
        server, self._server = self._server, None
        await self.leave()
        # We end late calls ourselves, with a reason; gRPC would end them with CANCELLED.
        overdue = asyncio.get_running_loop().call_later(self._drain_s, self._calls.end)
        grace_s = self._drain_s + END_S
        self.local.close()
        stopping = asyncio.gather(server.stop(grace_s), self._calls.ended(grace_s), self._http_ended(grace_s))
        await self._calls.streams_ended(min(GOAWAY_GRACE_S, self._drain_s))
        self._health.end()
        async with contextlib.AsyncExitStack() as steps:
            # In reverse order: a step that fails does not prevent the others.
            if self._issuers:
                steps.push_async_callback(self._in_time, "issuers", self._issuers.stop)
            steps.push_async_callback(self._in_time, "close", self.service.close)
            steps.push_async_callback(self._in_time, "stop", lambda: stopping)
            steps.push_async_callback(self._in_time, "drain", self.service.drain)
        overdue.cancel()
        _log.info("service_stopped", service=self.service.name)

    async def _http_ended(self, within_s: float) -> None:
        if self.http:
            self.http.close()
            await self.http.ended(within_s)

    async def _in_time(self, step: str, work: Callable[[], Awaitable[object]]) -> None:
        """Run a step of the shutdown with a time limit; a step that hangs is abandoned."""
        try:
            async with asyncio.timeout(self._step_s_max):
                await work()
        except TimeoutError:
            tasks = sorted(task.get_name() for task in asyncio.all_tasks())
            _log.error("stop_delayed", service=self.service.name, step=step, tasks=tasks)


def stop_signal() -> asyncio.Future[int]:
    """Wait for SIGTERM or SIGINT; a second signal ends the process at once."""
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


async def ends_before(stop: asyncio.Future[Any], work: Coroutine[Any, Any, object]) -> bool:
    """Do some work, or cancel it once `stop` is done; whether it came to its end. Raises what the work does."""
    doing = asyncio.ensure_future(work)
    await asyncio.wait({doing, stop}, return_when=asyncio.FIRST_COMPLETED)
    if not doing.done():
        doing.cancel()
        await asyncio.wait({doing})
        return False
    doing.result()
    return True


async def serve_until_stopped(*servers: RunningServer, lame_duck_s: float = 0.0) -> None:
    """Start the servers in order, wait for a signal, stop them in reverse order.

    After SIGTERM they keep serving for `lame_duck_s` while they report NOT_SERVING, so that no new calls come when they
    stop.
    """
    came = stop_signal()
    async with contextlib.AsyncExitStack() as stack:
        for server in servers:
            if not await ends_before(came, server.start()):
                return
            stack.push_async_callback(server.stop)
        if await came == signal.SIGTERM:
            await enter_lame_duck(servers, lame_duck_s)


async def enter_lame_duck(servers: Iterable[RunningServer], lame_duck_s: float) -> None:
    """Have servers report NOT_SERVING, and wait until load balancers have noticed."""
    for server in servers:
        await server.leave()
    await asyncio.sleep(lame_duck_s)

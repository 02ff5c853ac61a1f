"""A stack: some or all of the four services in this process, each a real gRPC server. Used by `serve` and embedded.

Peers use the addresses that the services really listen on.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from turnwright_cli.discovery import StackRecord, another_serves
from turnwright_cli.plugin_output import logged_prints
from turnwright_kit.home import ensure_home, socket_address
from turnwright_kit.in_process import LocalServer
from turnwright_kit.memory import allow_open_files, freeze_loaded, hide_memory
from turnwright_kit.service import LocalService, Service
from turnwright_kit.settings import Setting, Settings, load

if TYPE_CHECKING:
    from turnwright_kit.server import RunningServer

START_ORDER: Final = ("store", "provider", "assembler", "executor")
"""Services after those that they call; they stop in reverse.

The store starts first because it alone detects a second stack on the same home, before that one takes over any socket.
"""

LISTEN: Final[Mapping[str, str]] = {
    "executor": "127.0.0.1:7440",
    "store": "127.0.0.1:7441",
    "assembler": "127.0.0.1:7442",
    "provider": "127.0.0.1:7443",
}
"""Default addresses to listen on."""


HTTP: Final = "http"
"""The executor's second address, as `--listen` names it."""

HTTP_LISTEN: Final = "127.0.0.1:7444"
"""Where `serve` has it by default."""


class StackPlan(Struct, frozen=True):
    """What runs in this process: the address of each service, and the addresses of peers elsewhere."""

    listen: Mapping[str, str]
    peers: Mapping[str, str] = field(default_factory=dict)
    home: Path | None = None
    """Home of the services; None: from the environment."""
    db: str | None = None
    """The store's database; None: from the environment."""
    http: str | None = None
    """Address at which the executor serves HTTP, empty for none; None: from the environment."""
    embedded: bool = False
    """Whether the stack belongs to one command and ends with it."""
    reads: bool = False
    """Whether that command only reads: the services listen nowhere, and nothing is worked on or written."""


def embedded_plan(home: Path) -> StackPlan:
    """All four services on sockets in the home."""
    ensure_home(home)
    listen = {name: socket_address(home, name) for name in START_ORDER}
    return StackPlan(listen, home=home, embedded=True)


def reading_plan(home: Path, more: Collection[str]) -> StackPlan:
    """The store and an executor that only reads, with `more` services that it needs for that."""
    ensure_home(home)
    names = [name for name in START_ORDER if name in {"store", "executor", *more}]
    return StackPlan({name: f"in-process:{name}" for name in names}, home=home, embedded=True, reads=True)


class Stack:
    """The services of a plan. Settings are read at once, so that wrong ones are reported before anything starts."""

    def __init__(self, plan: StackPlan) -> None:
        """Read every service's settings. Raises SettingsError, and OSError if there is no home."""
        self._plan = plan
        self._settings = {name: _load(name, plan) for name in START_ORDER if name in plan.listen}
        self.addresses: dict[str, str] = {}
        """Actual addresses of the services, by name; complete once started."""
        self.http = ""
        """Where the executor serves HTTP, if it does."""
        self.local_servers: dict[str, LocalServer] = {}
        """Their handlers for callers in this process, by address."""
        self._servers: list[RunningServer] = []
        self._running = contextlib.AsyncExitStack()

    @property
    def home(self) -> Path:
        return next(iter(self._settings.values())).home

    @property
    def secret(self) -> str:
        return next(iter(self._settings.values())).secret()

    async def start(self) -> None:
        """Start the services in order, and write the discovery record.

        Raises OSError, with nothing running, if an address cannot be bound or the database cannot be opened: another
        process has it, a newer version wrote it, or it is unreachable.
        """
        hide_memory()
        if not self._plan.embedded:
            allow_open_files()
        with gc_paused():
            async with contextlib.AsyncExitStack() as starting:
                if self._plan.embedded:
                    starting.enter_context(logged_prints())
                for name, settings in self._settings.items():
                    await (self._start_reading if self._plan.reads else self._start)(name, settings, starting)
                if self._plan.reads:
                    self._running = starting.pop_all()
                    return
                executor = self.addresses.get("executor", "")
                record = StackRecord(executor, os.getpid(), self._plan.embedded, self.http, self.addresses)
                if not await another_serves(record, self.home, next(iter(self._settings.values())).tls):
                    record.write(self.home)
                    starting.callback(record.remove, self.home)
                self._running = starting.pop_all()

    async def _start(self, name: str, settings: Settings, starting: contextlib.AsyncExitStack) -> None:
        from turnwright_kit.server import RunningServer

        server = RunningServer(self._built(name, settings), self._plan.listen[name], self.secret, settings.drain_s)
        await server.start()
        self._servers.append(server)
        starting.push_async_callback(server.stop)
        self.addresses[name] = reachable(server.address)
        if server.http:
            self.http = server.http.url
        self.local_servers[self.addresses[name]] = server.local

    async def _start_reading(self, name: str, settings: Settings, starting: contextlib.AsyncExitStack) -> None:
        service = LocalService(self._built(name, settings), self.secret, settings.drain_s)
        await service.start()
        starting.push_async_callback(service.stop)
        self.addresses[name] = self._plan.listen[name]
        self.local_servers[self.addresses[name]] = service.local

    def _built(self, name: str, settings: Settings) -> Service:
        """The service as its composition root makes it, imported on demand."""
        reads_only = self._plan.reads and name in ("store", "executor")
        wiring = import_module(f"turnwright_{name}.{'read_only_wiring' if reads_only else 'wiring'}")
        build: Callable[..., Service] = wiring.build
        peers = {peer: self.addresses[peer] for peer in self.addresses if peer in settings.fields}
        known = settings.copied(**peers)
        return build(known, self.secret, self.local_servers) if peers else build(known, self.secret)

    async def leave(self) -> None:
        """Have all services report NOT_SERVING, and keep serving for the lame duck period."""
        from turnwright_kit.server import enter_lame_duck

        await enter_lame_duck(self._servers, max(settings.lame_duck_s for settings in self._settings.values()))

    async def stop(self) -> None:
        """Remove the discovery record and stop the services in reverse order."""
        await self._running.aclose()


def _load(name: str, plan: StackPlan) -> Settings:
    kind = settings_class(name)
    listen = "" if plan.reads else plan.listen[name]
    given: dict[str, object] = {
        **plan.peers,
        "home": plan.home,
        "listen": listen,
        "db": plan.db,
        "http_listen": plan.http,
    }
    if plan.embedded:
        # A command that lists runs must not continue the work of another one that was killed.
        given["recover"] = False
        # Whoever held runs of this home was a process like this one, and has ended: the store's lock proves it.
        given["sole_executor"] = True
        given["waits_for_database"] = False
        given["http_listen"] = ""
    return load(kind, **{key: value for key, value in given.items() if key in kind.fields.keys() | kind.fixed})


def settings_class(name: str) -> type[Settings]:
    """The settings class of a service, imported on demand."""
    found: type[Settings] = getattr(import_module(f"turnwright_{name}.config"), f"{name.capitalize()}Settings")
    return found


def setting_fields(*more: type[Settings]) -> dict[str, Setting]:
    """The settings of all services, and of these classes, by variable."""
    kinds = (*map(settings_class, (*START_ORDER, "mcp", "sandbox")), *more)
    return {variable: field for kind in kinds for field in kind.fields.values() for variable in field.variables}


def reachable(address: str) -> str:
    """The address at which a local service can be called: a wildcard can be listened on, but not called."""
    for wildcard, loopback in (("0.0.0.0:", "127.0.0.1:"), ("[::]:", "[::1]:")):
        if address.startswith(wildcard):
            return loopback + address.removeprefix(wildcard)
    return address


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector while modules are loaded, then freeze what was loaded.

    Modules live as long as the process, and have so many objects that each full collection takes as long as several
    turns.
    """
    gc.disable()
    try:
        yield
    finally:
        freeze_loaded()
        gc.enable()

"""Some or all of the four services in this process, each a real gRPC server: `serve`, and the embedded stack.

Peers follow the addresses that services really listen on. Source: architecture 13, 15.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from turnwright_client.discovery import StackRecord
from turnwright_core.kit.home import ensure_home, socket_address
from turnwright_core.kit.in_process import LocalServer
from turnwright_core.kit.memory import hide_memory
from turnwright_core.kit.server import RunningServer, leave
from turnwright_core.kit.settings import Settings, load

START_ORDER: Final = ("store", "provider", "assembler", "executor")
"""Each service after those that it calls; stopped in reverse. The store comes first because it alone notices a
second stack on the same home, before that one takes over any socket."""

LISTEN: Final[Mapping[str, str]] = {
    "executor": "127.0.0.1:7440",
    "store": "127.0.0.1:7441",
    "assembler": "127.0.0.1:7442",
    "provider": "127.0.0.1:7443",
}
"""Where each service listens when nothing else is said."""


class StackPlan(Struct, frozen=True):
    """What runs in this process: where each service listens, and where the peers are that do not run in it."""

    listen: Mapping[str, str]
    peers: Mapping[str, str] = field(default_factory=dict)
    home: Path | None = None
    """The home of the services; None leaves it to the environment."""
    db: str | None = None
    """The store's database; None leaves it to the environment."""
    embedded: bool = False
    """Whether the stack belongs to one command and ends with it."""


def embedded_plan(home: Path) -> StackPlan:
    """All four services on sockets in the home."""
    ensure_home(home)
    listen = {name: socket_address(home, name) for name in START_ORDER}
    return StackPlan(listen, home=home, embedded=True)


class Stack:
    """The services of a plan. Settings are read at once, so that wrong ones are told before anything starts."""

    def __init__(self, plan: StackPlan) -> None:
        """Read every service's settings. Raises SettingsError, and OSError where there is no home."""
        self._plan = plan
        self._settings = {name: _load(name, plan) for name in START_ORDER if name in plan.listen}
        self.addresses: dict[str, str] = {}
        """Where the services listen, by name; complete once started."""
        self._neighbours: dict[str, LocalServer] = {}
        self._servers: list[RunningServer] = []
        self._running = contextlib.AsyncExitStack()

    @property
    def home(self) -> Path:
        return next(iter(self._settings.values())).home

    @property
    def secret(self) -> str:
        return next(iter(self._settings.values())).secret()

    async def start(self) -> None:
        """Start the services in order, and write down where the executor is.

        Raises OSError when an address cannot be bound or the database cannot be had: it belongs to another process, to
        a newer version, or is not reachable. Nothing runs then.
        """
        hide_memory()
        with gc_paused():
            async with contextlib.AsyncExitStack() as starting:
                for name, settings in self._settings.items():
                    server = self._server(name, settings)
                    await server.start()
                    self._servers.append(server)
                    starting.push_async_callback(server.stop)
                    self.addresses[name] = reachable(server.address)
                    self._neighbours[self.addresses[name]] = server.local
                if executor := self.addresses.get("executor"):
                    record = StackRecord(executor, os.getpid(), self._plan.embedded)
                    record.write(self.home)
                    starting.callback(record.remove, self.home)
                self._running = starting.pop_all()

    def _server(self, name: str, settings: Settings) -> RunningServer:
        build = importlib.import_module(f"turnwright_{name}.wiring").build
        peers = {peer: self.addresses[peer] for peer in _peers_of(settings) if peer in self.addresses}
        known, secret = settings.copied(**peers), self.secret
        service = build(known, secret, self._neighbours) if peers else build(known, secret)
        return RunningServer(service, self._plan.listen[name], secret, settings.drain_s)

    async def leave(self) -> None:
        """Have all services say that they stop, and go on for as long as the settings ask for."""
        await leave(self._servers, max(settings.lame_duck_s for settings in self._settings.values()))

    async def stop(self) -> None:
        """Take the record back and stop the services in reverse order."""
        await self._running.aclose()


def _load(name: str, plan: StackPlan) -> Settings:
    kind = settings_class(name)
    given: dict[str, object] = {**plan.peers, "home": plan.home, "listen": plan.listen[name], "db": plan.db}
    if plan.embedded:
        # A command that lists runs must not go on with the work of another one that was killed.
        given["recover"] = False
        # Whoever held runs of this home was a process like this one, and has ended: the store's lock says so.
        given["sole_executor"] = True
    return load(kind, **{key: value for key, value in given.items() if key in kind.fields.keys() | kind.fixed})


def settings_class(name: str) -> type[Settings]:
    """The class of a service's settings, loaded when asked for."""
    module: Any = importlib.import_module(f"turnwright_{name}.config")
    kind: type[Settings] = getattr(module, f"{name.capitalize()}Settings")
    return kind


def _peers_of(settings: Settings) -> Sequence[str]:
    return [name for name in START_ORDER if name in settings.fields]


def reachable(address: str) -> str:
    """Where a service of this host that listens on an address is called: a wildcard listens, but is no destination."""
    for wildcard, loopback in (("0.0.0.0:", "127.0.0.1:"), ("[::]:", "[::1]:")):
        if address.startswith(wildcard):
            return loopback + address.removeprefix(wildcard)
    return address


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Load modules in the block without a search; what is there at its end is never searched again.

    Modules live as long as the process, and there are so many of their objects that each full search takes as long as
    several turns.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()

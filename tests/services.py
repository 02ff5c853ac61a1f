"""All four services in the test's process, each a real server on a unix socket, with a client in front."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
from turnwright.executor.v1 import executor_service_pb2
from turnwright.types.v1 import grant_pb2, loop_pb2, settings_pb2, turn_pb2

from databases import migrated_file
from turnwright_assembler.config import AssemblerSettings
from turnwright_assembler.wiring import build as build_assembler
from turnwright_client import Client, RunView
from turnwright_client.client import QueuedLoop, loop_in
from turnwright_core.runs import LOOP_ENDED
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.wiring import build as build_executor
from turnwright_kit.identity.caller import Kind
from turnwright_kit.identity.own_tokens import DAY_S, TokenKey, make_token
from turnwright_kit.in_process import LocalServer
from turnwright_kit.server import EVERY_S, RunningServer
from turnwright_kit.service import Service
from turnwright_provider.config import ProviderSettings
from turnwright_provider.wiring import build as build_provider
from turnwright_store.config import StoreSettings
from turnwright_store.wiring import build as build_store

SECRET = "services-secret"


def token_for(
    name: str, kind: Kind = Kind.PERSON, *, audience: str = "executor", secret: str = SECRET, **claims: Any
) -> str:
    """A token of somebody who does not hold the secret."""
    return make_token(TokenKey.of(secret, audience), name, kind, DAY_S, **claims)


LEASE_S = 600.0
"""So long that no lease is lost, and no renewal tells an executor of anything, before a test is given up."""


def expected_tokens(result: turn_pb2.TurnResult) -> int:
    """The tokens that a turn's prompt was expected to take."""
    return round(result.packet_tokens * (result.calibration or 1.0))


Event = executor_service_pb2.WatchRunResponse


@dataclass
class Services:
    """A folder with a home, a project and scripts, and the client of the stack that runs in it."""

    root: Path
    client: Client
    addresses: dict[str, str]
    project: str = ""
    events: list[Event] = field(default_factory=list)
    builds: dict[str, Callable[[], Service]] = field(default_factory=dict)
    servers: dict[str, RunningServer] = field(default_factory=dict)
    local_servers: dict[str, LocalServer] | None = None
    """Those that are called without a network, by address; None: all calls go over sockets."""
    drain_s: float = 1.0
    """What calls in progress have when a service is stopped."""
    look_every_s: float = EVERY_S
    """Seconds between looks whether a service is ready."""
    folder: str = "project"
    """Where the files of the project are, below the root."""

    @property
    def files(self) -> Path:
        return self.root / self.folder

    async def with_project(self, folder: str) -> Services:
        """The same stack with another project, of which nothing has been heard yet."""
        made = replace(self, folder=folder, events=[])
        made.files.mkdir()
        made.project = await self.client_project(made.files)
        return made

    async def client_project(self, folder: Path) -> str:
        """A project in which everybody with an identity is a member."""
        name = (await self.client.init_project(str(folder))).name
        await self.client.set_grant(name, "*", grant_pb2.GRANT_ROLE_MEMBER)
        return name

    async def start(self, name: str, observers: Sequence[grpc.aio.ServerInterceptor] = ()) -> None:
        server = RunningServer(
            self.builds[name](), self.addresses[name], SECRET, self.drain_s, observers, look_every_s=self.look_every_s
        )
        await server.start()
        self.servers[name] = server
        if self.local_servers is not None:
            self.local_servers[self.addresses[name]] = server.local

    async def stop(self, name: str) -> None:
        await self.servers.pop(name).stop()

    async def restart(self, name: str) -> None:
        """Another process would have nothing of this one in memory either."""
        await self.stop(name)
        await self.start(name)

    def script(self, *replies: str, name: str = "m") -> None:
        """What the model `m` replies, in order."""
        blocks = [f"=== reply chunk_chars=64 delay_ms=0 ===\n{reply}\n" for reply in replies]
        (self.root / f"{name}.txt").write_text("".join(blocks))

    async def act(self, prompt: str = "Do it.", run: str = "r", **settings: Any) -> QueuedLoop:
        wanted = settings_pb2.LoopSettings(**{"model": "m", "yolo": True, **settings})
        return await self.client.act(self.project, prompt, run=run, settings=wanted)

    async def ask(self, prompt: str = "What is it?", run: str = "r", **settings: Any) -> QueuedLoop:
        wanted = settings_pb2.LoopSettings(**{"model": "m", **settings})
        return await self.client.ask(self.project, prompt, run=run, settings=wanted)

    async def until(self, queued: QueuedLoop, *statuses: int) -> loop_pb2.Loop:
        """Watch until the loop is at one of the statuses (ended, if none is named); the events are kept."""
        wanted = frozenset(statuses) or LOOP_ENDED
        async with contextlib.aclosing(self.client.watch(queued.project, queued.run, queued.cursor)) as events:
            async for event in events:
                self.events.append(event)
                loop = loop_in(event)
                if loop and loop.sequence == queued.sequence and loop.status in wanted:
                    return loop
        raise AssertionError("the watch ended")

    async def entry(self, path: str, run: str = "r"):
        return await self.client.get_entry(self.project, run, path)

    async def status(self, path: str, run: str = "r") -> int:
        return (await self.entry(path, run)).status

    def view(self) -> RunView:
        """What the events tell, folded."""
        return RunView().apply_all(self.events)


@contextlib.asynccontextmanager
async def running(
    root: Path,
    observers: Sequence[grpc.aio.ServerInterceptor] = (),
    store_settings: Mapping[str, Any] | None = None,
    *,
    as_neighbours: bool = False,
    look_every_s: float = EVERY_S,
    **executor: Any,
) -> AsyncIterator[Services]:
    """The four services in a folder; keywords are settings of the executor."""
    # What a command may do must not depend on what the host has installed.
    # And no test waits for a command that goes on for long when the executor is stopped.
    # A machine that stalls for seconds must not cost an executor its lease: it would call the model once more.
    executor = {"sh_sandbox": "limits", "drain_s": 0.0, "lease_s": LEASE_S, **executor}
    for folder in (root / "home", root / "project"):
        folder.mkdir(exist_ok=True)
    if "TURNWRIGHT_DB" not in os.environ and not (root / "home" / "turnwright.db").exists():
        shutil.copy(migrated_file(), root / "home")
    at = {name: f"unix:{root}/{name}.sock" for name in ("store", "provider", "assembler", "executor")}
    common = {"home": root / "home", "token": SECRET, "log_level": "error"}
    peers = {name: at[name] for name in ("store", "provider", "assembler")}
    async with contextlib.AsyncExitStack() as stopping:
        made = Services(root, await stopping.enter_async_context(Client.connect(at["executor"], SECRET)), at)
        made.builds = {
            "store": lambda: build_store(StoreSettings(**common, **(store_settings or {})), SECRET),
            "provider": lambda: build_provider(ProviderSettings(**common, scripted_dir=root, flush_ms=0), SECRET),
            "assembler": lambda: build_assembler(
                AssemblerSettings(**common, store=at["store"]), SECRET, made.local_servers
            ),
            "executor": lambda: build_executor(
                ExecutorSettings(**{**common, **peers, "listen": at["executor"], **executor}),
                SECRET,
                made.local_servers,
            ),
        }
        made.local_servers = {} if as_neighbours else None
        made.look_every_s = look_every_s
        for name in made.builds:
            await made.start(name, observers)
            stopping.push_async_callback(made.stop, name)
        made.project = await made.client_project(made.files)
        yield made

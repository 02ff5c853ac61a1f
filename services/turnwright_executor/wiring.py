"""The composition root of the executor: the only module that names concrete edges."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from typing import cast

import grpc
from turnwright.executor.v1 import executor_service_pb2, executor_service_pb2_grpc

from turnwright_core.entries import Tier
from turnwright_core.kit.auth import call_metadata
from turnwright_core.kit.logs import get_logger
from turnwright_core.kit.neighbours import Neighbours
from turnwright_core.kit.peer import Peer
from turnwright_core.kit.server import Service
from turnwright_core.kit.settings import SettingsError
from turnwright_executor.app.boards import Boards
from turnwright_executor.app.calling import Bench, ToolCalls
from turnwright_executor.app.control import Control
from turnwright_executor.app.desk import Desk
from turnwright_executor.app.generation import Generation
from turnwright_executor.app.hubs import Hubs
from turnwright_executor.app.leases import Leases
from turnwright_executor.app.loop import Services
from turnwright_executor.app.resolving import Decisions
from turnwright_executor.app.runner import Runner
from turnwright_executor.app.tail import TailBounds
from turnwright_executor.config import DEFAULT_LISTEN, ExecutorSettings
from turnwright_executor.edge.assembler import AssemblerPackets
from turnwright_executor.edge.control import OutsideLedger, StoreControl
from turnwright_executor.edge.inbox import StoreInbox
from turnwright_executor.edge.owners import Owners
from turnwright_executor.edge.places import Places, locate
from turnwright_executor.edge.provider import ProviderModels
from turnwright_executor.edge.queries import StoreQueries
from turnwright_executor.edge.registry import StoreRegistry
from turnwright_executor.edge.relaying import Relays
from turnwright_executor.edge.routing import RoutedServer, Router
from turnwright_executor.edge.sandbox import Sandbox, SandboxMissingError, find_sandbox
from turnwright_executor.edge.schemes import KnownSchemes
from turnwright_executor.edge.store import StoreLedger
from turnwright_executor.edge.streams import StoreStreams
from turnwright_executor.hooks.chains import Hooks
from turnwright_executor.hooks.plugins import load_hooks
from turnwright_executor.rpc.catalogue import catalogue
from turnwright_executor.rpc.control_servicer import Steering
from turnwright_executor.rpc.executor_servicer import ExecutorServicer
from turnwright_executor.tools.limits import ToolLimits
from turnwright_executor.tools.registry import build_tools, docs_of

_log = get_logger("executor")


def build(settings: ExecutorSettings, secret: str, neighbours: Neighbours | None = None) -> Service:
    """The executor over these settings; nothing happens before its start hook runs."""
    return _Wired(settings, secret, neighbours).service()


class _Wired:
    """The executor's objects. They need a running event loop, so they are made by the start hook."""

    def __init__(self, settings: ExecutorSettings, secret: str, neighbours: Neighbours | None) -> None:
        self._settings = settings
        self._neighbours = neighbours
        self._secret = secret
        self._peers: list[Peer] = []

    def service(self) -> Service:
        """What the server runs."""
        full_name = executor_service_pb2.DESCRIPTOR.services_by_name["ExecutorService"].full_name
        return Service(
            name="executor",
            grpc_name=full_name,
            register=lambda server: executor_service_pb2_grpc.add_ExecutorServiceServicer_to_server(
                self._servicer, cast("grpc.aio.Server", RoutedServer(server, self._router))
            ),
            start=self._start,
            drain=self._drain,
            close=self._close,
        )

    def _peer(self, name: str, address: str) -> Peer:
        peer = Peer(name, address, self._secret, self._settings.rpc_timeout_s, neighbours=self._neighbours)
        self._peers.append(peer)
        return peer

    async def _start(self) -> None:
        settings = self._settings
        self._hooks = Hooks(load_hooks(settings.hooks), settings.hook_deadline_s)
        _log.info("hooks", active=self._hooks.plugins)
        sandbox = await _sandbox(settings)
        store = self._peer("store", settings.store)
        assembler = self._peer("assembler", settings.assembler)
        provider = self._peer("provider", settings.provider)
        owner, own_address = secrets.token_hex(8), settings.listen or DEFAULT_LISTEN
        advertised = _advertised(settings)
        schemes = KnownSchemes()
        ledger = StoreLedger(store, owner, advertised, round(settings.lease_s * 1000), schemes)
        models = ProviderModels(provider, settings.generate_deadline_s)
        tools = build_tools(
            ToolLimits(
                known_tokens_max=settings.max_entry_tokens,
                command_timeout_s=settings.sh_timeout_s,
                beat_s=settings.sh_beat_s,
            )
        )
        services = Services(
            ledger=ledger,
            packets=AssemblerPackets(assembler),
            generation=Generation(models, settings.generate_attempts, settings.reply_bytes_max, time.monotonic),
            tools=tools,
            tool_docs=docs_of(tools),
            settings=settings,
            hooks=self._hooks,
        )
        self._hubs = Hubs(owner, ledger, settings)
        leases = Leases(ledger, _boot_s, await _workspaces(settings.workspaces), registers=settings.recover)
        places = self._places = Places(ledger, settings, sandbox)
        self._runner = Runner(services, self._hubs, leases, places.find)
        self._owners = Owners(ledger, advertised, leases.holds)
        relays = Relays(TailBounds(settings.tail_events, settings.tail_bytes))
        self._router = Router(self._owners, settings.owner_poll_s, relays, call_metadata(self._secret, Tier.CLIENT))
        desk = Desk(StoreRegistry(store), self._hubs, self._runner, locate)
        queries = StoreQueries(store, assembler, provider, schemes, own_address, sandbox.name)
        self._decisions = decisions = Decisions(StoreInbox(store), ledger, self._hubs, self._runner)
        rows = StoreControl(store)
        self._boards = Boards(rows, settings.event_heartbeat_s)

        async def bench(project: str) -> Bench:
            return await places.bench(project, await rows.project_root(project))

        outside = OutsideLedger(store, owner, advertised, schemes=schemes)
        self._calls = ToolCalls(outside, tools, bench, self._hooks, self._hubs)
        steering = Steering(
            Control(rows, self._hubs),
            self._calls,
            self._boards,
            catalogue(docs_of(tools)),
        )
        self._servicer = ExecutorServicer(desk, queries, self._hubs, decisions, StoreStreams(store), steering)
        self._runner.start(seek=settings.recover)

    async def _drain(self) -> None:
        self._boards.close()
        self._decisions.close()
        await asyncio.gather(self._runner.drain(), self._calls.stop())
        await self._places.close()
        await self._hooks.stop()
        await self._hubs.close()

    async def _close(self) -> None:
        await self._owners.close()
        for peer in self._peers:
            await peer.close()


def _advertised(settings: ExecutorSettings) -> str:
    """Where other executors reach this one; empty where they cannot, or where nobody knows before it listens."""
    if settings.advertise:
        return settings.advertise
    host, _, port = (settings.listen or DEFAULT_LISTEN).rpartition(":")
    return "" if host in ("0.0.0.0", "[::]") or port == "0" else settings.listen or DEFAULT_LISTEN  # noqa: S104


async def _sandbox(settings: ExecutorSettings) -> Sandbox:
    """How commands are confined here. Raises SettingsError where the settings ask for more than the host can do."""
    try:
        writable = [path for path in settings.sh_writable.split(os.pathsep) if path]
        return await find_sandbox(settings.sh_sandbox, settings.home, writable)
    except SandboxMissingError as error:
        raise SettingsError(f"TURNWRIGHT_SH_SANDBOX: {error}") from None


def _boot_s() -> float:
    """Seconds that go on while the host sleeps, where it has such a clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


async def _workspaces(directories: str) -> list[str]:
    """The ids of the directories' workspaces. Raises OSError where one is no directory."""
    found = []
    for directory in filter(None, directories.split(os.pathsep)):
        workspace = await locate(directory)
        if workspace is None:
            raise FileNotFoundError(2, "there is no such directory to work in", directory)
        found.append(workspace.id)
    return found

"""The composition root of the executor: the only module that names concrete edges."""

from __future__ import annotations

import os
import secrets
import time

from turnwright.executor.v1 import executor_service_pb2, executor_service_pb2_grpc

from turnwright_core.kit.peer import Peer
from turnwright_core.kit.server import Service
from turnwright_executor.app.desk import Desk
from turnwright_executor.app.generation import Generation
from turnwright_executor.app.hubs import Hubs
from turnwright_executor.app.leases import Leases
from turnwright_executor.app.loop import Services
from turnwright_executor.app.runner import Runner
from turnwright_executor.config import DEFAULT_LISTEN, ExecutorSettings
from turnwright_executor.edge.assembler import AssemblerPackets
from turnwright_executor.edge.places import Places, locate
from turnwright_executor.edge.provider import ProviderModels
from turnwright_executor.edge.queries import StoreQueries
from turnwright_executor.edge.registry import StoreRegistry
from turnwright_executor.edge.store import StoreLedger
from turnwright_executor.rpc.executor_servicer import ExecutorServicer
from turnwright_executor.tools.limits import ToolLimits
from turnwright_executor.tools.registry import build_tools, docs_of


def build(settings: ExecutorSettings, secret: str) -> Service:
    """The executor over these settings; nothing happens before its start hook runs."""
    return _Wired(settings, secret).service()


class _Wired:
    """The executor's objects. They need a running event loop, so they are made by the start hook."""

    def __init__(self, settings: ExecutorSettings, secret: str) -> None:
        self._settings = settings
        self._secret = secret
        self._peers: list[Peer] = []

    def service(self) -> Service:
        """What the server runs."""
        full_name = executor_service_pb2.DESCRIPTOR.services_by_name["ExecutorService"].full_name
        return Service(
            name="executor",
            grpc_name=full_name,
            register=lambda server: executor_service_pb2_grpc.add_ExecutorServiceServicer_to_server(
                self._servicer, server
            ),
            start=self._start,
            drain=self._drain,
            close=self._close,
        )

    def _peer(self, name: str, address: str) -> Peer:
        peer = Peer(name, address, self._secret, self._settings.rpc_timeout_s)
        self._peers.append(peer)
        return peer

    async def _start(self) -> None:
        settings = self._settings
        store = self._peer("store", settings.store)
        assembler = self._peer("assembler", settings.assembler)
        provider = self._peer("provider", settings.provider)
        owner, own_address = secrets.token_hex(8), settings.listen or DEFAULT_LISTEN
        ledger = StoreLedger(store, owner, own_address, round(settings.lease_s * 1000))
        models = ProviderModels(provider, settings.generate_deadline_s)
        tools = build_tools(
            ToolLimits(known_tokens_max=settings.max_entry_tokens, command_timeout_s=settings.sh_timeout_s)
        )
        services = Services(
            ledger=ledger,
            packets=AssemblerPackets(assembler),
            generation=Generation(models, settings.generate_attempts, settings.reply_bytes_max, time.monotonic),
            tools=tools,
            tool_docs=docs_of(tools),
            settings=settings,
        )
        self._hubs = Hubs(owner, ledger, settings)
        leases = Leases(ledger, _boot_s, await _workspaces(settings.workspaces), registers=settings.recover)
        self._runner = Runner(services, self._hubs, leases, Places(ledger, settings).find)
        desk = Desk(StoreRegistry(store), self._hubs, self._runner, locate)
        queries = StoreQueries(store, assembler, provider, own_address)
        self._servicer = ExecutorServicer(desk, queries, self._hubs)
        self._runner.start(seek=settings.recover)

    async def _drain(self) -> None:
        await self._runner.drain()
        await self._hubs.close()

    async def _close(self) -> None:
        for peer in self._peers:
            await peer.close()


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

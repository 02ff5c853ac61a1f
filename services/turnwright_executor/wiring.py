"""The composition root of the executor: the only module that names concrete edges."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import grpc
from turnwright.executor.v1 import executor_service_pb2, executor_service_pb2_grpc, query_pb2
from turnwright_values.types import Run, Tier

from turnwright_core.errors import TurnwrightError
from turnwright_core.wire.owner_calls import OWNER_CALLS
from turnwright_executor.clients.tool_calls import ToolCalls
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.endings import AWAY
from turnwright_executor.domain.tool_servers import allowed_hosts
from turnwright_executor.files.projects import ClientRoots, Projects, locate, unfit
from turnwright_executor.files.workspace import DiskWorkspace
from turnwright_executor.hooks.chains import Hooks
from turnwright_executor.hooks.registry import load_plugins
from turnwright_executor.peers.assembler import AssemblerPackets
from turnwright_executor.peers.deliveries import Deliveries
from turnwright_executor.peers.explaining import PacketExplanations
from turnwright_executor.peers.mcp_bridge import BridgePlace, McpBridge
from turnwright_executor.peers.owners import OwnerMonitors, Owners
from turnwright_executor.peers.policy import follow_policy, renew_policy
from turnwright_executor.peers.provider import ProviderModels, Vendors
from turnwright_executor.peers.relaying import Relays
from turnwright_executor.peers.routing import Router
from turnwright_executor.peers.sandboxes import GrpcSandboxHosts, HostSettings
from turnwright_executor.peers.schemes import KnownSchemes, register_schemes
from turnwright_executor.peers.server_starts import ServerStarts
from turnwright_executor.peers.status import Status
from turnwright_executor.peers.store import StoreLedger
from turnwright_executor.peers.tool_channels import ServerChannels
from turnwright_executor.peers.tool_lists import ToolLists
from turnwright_executor.peers.tool_logins import ToolLogins
from turnwright_executor.peers.tool_registrations import Callbacks, Registrations, StoredServers
from turnwright_executor.peers.tool_servers import GrpcToolServers
from turnwright_executor.rpc.additions import around_audit, around_catalogues, around_grants
from turnwright_executor.rpc.catalogue import catalogue
from turnwright_executor.rpc.executor_servicer import ExecutorServicer
from turnwright_executor.rpc.forwarding import OpenWatches, check_seen
from turnwright_executor.rpc.mounting import mounts
from turnwright_executor.rpc.projects import ProjectCalls
from turnwright_executor.rpc.sessions import ClientCommands
from turnwright_executor.runs.leases import Leases
from turnwright_executor.runs.scheduler import Scheduler
from turnwright_executor.shell.placement import Placements
from turnwright_executor.shell.run_places import SWEEP_S
from turnwright_executor.tools.catalogue import ToolCatalogue
from turnwright_executor.tools.contract import Tool
from turnwright_executor.tools.plugin_tools import PluginToolAdapter
from turnwright_executor.tools.registry import build_tools, with_plugin_tools
from turnwright_executor.tools.undo import Undo
from turnwright_executor.turn.generation import Generation
from turnwright_executor.turn.loop_scope import Placement, Services
from turnwright_executor.turn.recording import reply_reader
from turnwright_executor.turn.titles import Titles
from turnwright_executor.turn.write_buffer import WriteBuffer
from turnwright_executor.watching.hubs import Hubs
from turnwright_executor.watching.tail import TailBounds
from turnwright_executor.web.web import HttpWeb
from turnwright_kit.addresses import reachable_address
from turnwright_kit.health import check_ready
from turnwright_kit.identity.credentials import Credentials
from turnwright_kit.identity.own_tokens import TokenKey
from turnwright_kit.identity.policy import Policy
from turnwright_kit.in_process import LocalServers
from turnwright_kit.logs import get_logger
from turnwright_kit.peer import Peer
from turnwright_kit.plugin_calls import PluginCalls
from turnwright_kit.plugins import TOOLS
from turnwright_kit.refusals import Refusals
from turnwright_kit.sandbox.finding import SandboxMissingError, find_sandbox
from turnwright_kit.sandbox.sandbox import Sandbox
from turnwright_kit.service import Service
from turnwright_kit.settings import SettingsError
from turnwright_kit.telemetry import count, observe
from turnwright_kit.telemetry_names import LEASES, LEASES_LOST, LOOPS, SANDBOX

SKILLS_FOLDER: Final = "skills"
"""Folder of the home with skills that every project has."""

SCHEMES_WAIT_S: Final = 30.0
"""Seconds that a start waits for the store where plugins bring schemes along."""

SCHEMES_POLL_S: Final = 0.5
"""Seconds between two tries."""

_log = get_logger("executor")


def build(settings: ExecutorSettings, secret: str, local_servers: LocalServers | None = None) -> Service:
    return _Wired(settings, secret, local_servers).service()


class _Wired:
    """The executor's objects. They need a running event loop, so they are made by the start hook."""

    def __init__(self, settings: ExecutorSettings, secret: str, local_servers: LocalServers | None) -> None:
        self._settings = settings
        self._local_servers = local_servers
        self._secret = secret
        self._peers: list[Peer] = []
        self._refusals = Refusals()
        self._policy = Policy(lambda: time.time_ns() // 1_000_000)
        self._following: list[asyncio.Task[None]] = []

    def service(self) -> Service:
        full_name = executor_service_pb2.DESCRIPTOR.services_by_name["ExecutorService"].full_name
        return Service(
            name="executor",
            grpc_name=full_name,
            register=self._register,
            policy=self._policy,
            start=self._start,
            listening=self._listening,
            dependencies={name: partial(self._check, name) for name in ("store", "assembler", "provider")},
            leave=self._leave,
            drain=self._drain,
            close=self._close,
            settings=self._settings,
            refusals=self._refusals,
            http=self._settings.http,
        )

    def _register(self, server: grpc.aio.Server) -> None:
        executor_service_pb2_grpc.add_ExecutorServiceServicer_to_server(self._servicer, server)
        server.add_generic_rpc_handlers(mounts(self._store, self._around, self._watches))

    async def _check(self, name: str) -> None:
        """Raise unless this dependency is ready."""
        await check_ready(next(peer for peer in self._peers if peer.name == name))

    def _peer(self, name: str, address: str) -> Peer:
        settings = self._settings
        peer = Peer(
            name,
            address,
            self._secret,
            settings.rpc_timeout_s,
            local_servers=self._local_servers,
            tls=settings.tls,
            codecs=OWNER_CALLS,
            service="executor",
            service_token=settings.peer_token(name),
        )
        self._peers.append(peer)
        return peer

    async def _start(self) -> None:
        settings = self._settings
        plugins = load_plugins(settings.hooks, settings.tools)
        self._hooks = Hooks(plugins, settings.hook_deadline_s)
        _log.info("plugins_loaded", active=self._hooks.plugins)
        sandbox = await _sandbox(settings)
        self._connect()
        offered = plugins.offered(PluginCalls(settings.tool_deadline_s))
        web = HttpWeb(settings)
        leases = Leases(self._ledger, _boot_s, await _workspaces(settings.workspaces), registers=settings.recover)
        self._tool_servers = await self._servers_of_tools(ServerStarts(leases.ends_s, _boot_s))
        services = self._services(with_plugin_tools(_tools(settings, web), offered))
        await _register_schemes(self._store, offered)
        plugins.opened(lambda at: WriteBuffer(self._ledger, RunAddress(at.project, at.run), None, at.turn, at.loop))
        self._hubs = Hubs(self._owner, self._ledger, settings)
        self._places = places = Placements(self._ledger, settings, sandbox, leases.ends_s, self._sandboxes)
        if settings.places:
            await self._claim_places()
        self._deliveries = Deliveries(self._store, self._ledger.deliveries_due, web.post)
        self._scheduler = Scheduler(services, self._hubs, leases, places.find)
        _observe(leases, self._scheduler, sandbox)
        self._owners = Owners(self._ledger, leases.holds, settings.tls)
        unconfigured = frozenset(settings.unconfigured_tools)
        self._tool_lists = lists = ToolLists(
            services.tools, unconfigured, services.catalogue, self._tool_servers, settings.token_divisor
        )
        status = Status(
            self._store, self._assembler, self._provider, settings, self._policy,
            query_pb2.Confinement.Value(f"CONFINEMENT_{sandbox.backend.name}"), lists.states,
        )  # fmt: skip
        self._addressed = (self._ledger, self._owners, status, self._callbacks)
        self._serve(services, places, status)

    async def _claim_places(self) -> None:
        """Raises SettingsError if the folder is another deployment's. A store that is away is asked later."""
        try:
            await self._places.own.claim()
        except TurnwrightError as error:
            if error.reason not in AWAY:
                await self._store.close()
                raise SettingsError(f"TURNWRIGHT_PLACES: {error.message}") from None

    def _connect(self) -> None:
        settings = self._settings
        self._store = self._peer("store", settings.store)
        self._assembler = self._peer("assembler", settings.assembler)
        self._provider = self._peer("provider", settings.provider)
        self._policy.reads = partial(renew_policy, self._store, self._policy)
        self._following.append(asyncio.create_task(follow_policy(self._store, self._policy), name="policy"))
        self._owner = secrets.token_hex(8)
        self._schemes = KnownSchemes()
        self._ledger = StoreLedger(self._store, self._owner, "", round(settings.lease_s * 1000), self._schemes)

    async def _servers_of_tools(self, starts: ServerStarts) -> GrpcToolServers:
        """Raises SettingsError for a file that cannot be used."""
        settings = self._settings
        self._stored_servers = StoredServers(self._store)
        try:
            registered = await asyncio.to_thread(Registrations, settings.tool_servers, self._stored_servers)
        except (OSError, ValueError) as error:
            raise SettingsError(f"TURNWRIGHT_TOOL_SERVERS: {error}") from None
        key = settings.own_key or (TokenKey.of(self._secret, "executor") if self._secret else None)
        self._callbacks = Callbacks(key, self._policy)
        hosts = allowed_hosts(settings.tool_hosts)
        token, has_tls = settings.peer_token("mcp"), settings.tls.is_on
        bridge = McpBridge(BridgePlace(settings.mcp, settings.home, settings.store, self._secret, token, has_tls))
        self._tool_logins = ToolLogins(self._store, registered.own, bridge, settings.tls)
        channels = ServerChannels(registered.secret, hosts, settings.tls, bridge)
        servers = GrpcToolServers(registered.of, channels, self._callbacks.lasting, starts)
        asked = HostSettings(
            settings.sandbox_away_s, settings.file_bytes_max, settings.files_max, settings.sh_output_bytes_max
        )
        self._sandboxes = GrpcSandboxHosts(servers, lambda: registered.file.servers, asked)
        return servers

    def _services(self, tools: Mapping[str, Tool]) -> Services:
        """What every loop works with."""
        settings = self._settings
        models = ProviderModels(self._provider, settings.generate_deadline_s, time.monotonic)
        reader = partial(reply_reader, settings.turn_commands_max, tools)
        packets = AssemblerPackets(self._assembler)
        self._titles = Titles(self._ledger, packets, models, settings)
        return Services(
            ledger=self._ledger,
            packets=packets,
            titles=self._titles,
            models=models,
            generation=Generation(models, settings.reply_bytes_max, time.monotonic, reader),
            tools=tools,
            settings=settings,
            hooks=self._hooks,
            catalogue=ToolCatalogue(self._tool_servers, self._tool_servers),
            wake=self._wake,
        )

    def _wake(self, address: RunAddress) -> None:
        self._scheduler.kick(address)

    def _serve(self, services: Services, places: Placements, status: Status) -> None:
        """Make what clients call."""
        settings, store, ledger = self._settings, self._store, self._ledger
        projects = Projects(store, self._sandboxes)
        explained = PacketExplanations(store, self._assembler, services, projects.root, places.current_files)
        roots = ClientRoots(settings.client_roots, settings.home)
        self._watches = OpenWatches(settings.event_heartbeat_s)

        async def tool_host(run: Run) -> Placement:
            return await places.tool_host(run, await projects.get(run.project))

        limit = settings.tool_calls_max
        tools = {**services.tools, Undo.name: services.tools.get(Undo.name) or Undo()}
        self._calls = ToolCalls(
            ledger, tools, tool_host, self._hooks, self._hubs, limit, self._owner, services.catalogue
        )
        check_vendor = Vendors(self._provider).check
        self._servicer = ExecutorServicer(
            store,
            ledger,
            self._hubs,
            self._scheduler,
            self._calls,
            places.like_run,
            explained.explain,
            status.read,
            check_vendor,
            catalogue({k: v for k, v in tools.items() if k not in settings.unconfigured_tools}),
            self._policy,
            self._tool_lists.read,
            self._tool_logins.step,
        )
        relays = Relays(TailBounds(settings.tail_events, settings.tail_bytes))
        monitors = OwnerMonitors(self._owners, settings.owner_poll_s)
        router = Router(
            self._owners,
            monitors,
            self._hubs,
            relays,
            Credentials(
                self._secret, "executor", Tier.CLIENT, "executor", settings.peer_token("executor"), settings.own_key
            ),
            partial(check_seen, store),
        )
        router.route(self._servicer)
        commands = ClientCommands(
            ledger, self._hubs, self._scheduler, check_vendor, partial(check_seen, store), router.owner_handler
        )
        clone = places.clones.clone
        calls = ProjectCalls(store, self._policy, projects.at, roots.admits, projects.locate, unfit, clone)
        audit = around_audit(self._refusals)
        catalogues = around_catalogues(self._tool_lists.checked, self._tool_logins.log_out, self._stored_servers.forget)
        around = (router.around(), calls.around(), commands.around(), around_grants(self._policy), catalogues, audit)
        self._around = {name: handler for handlers in around for name, handler in handlers.items()}

    def _listening(self, address: str) -> None:
        """Start to look for work, once other executors can reach this one: they read its address in the lease."""
        advertised = self._settings.advertise or reachable_address(address)
        for one in self._addressed:
            one.reached_at(advertised)
        _log.info("address_advertised", address=advertised, listening=address)
        self._scheduler.start(seek=self._settings.recover)
        self._deliveries.start()
        self._following.append(asyncio.create_task(self._sweep_places(), name="sweep places"))

    async def _sweep_places(self) -> None:
        """Remove the directories of runs that are no more, as long as this executor serves."""
        while True:
            try:
                await self._places.own.sweep()
                await self._places.clones.sweep()
            except (TurnwrightError, OSError) as error:
                _log.warning("places_not_swept", problem=str(error))
            await asyncio.sleep(SWEEP_S)

    def _leave(self) -> None:
        self._scheduler.leave()

    async def _drain(self) -> None:
        self._watches.close()
        await asyncio.gather(self._scheduler.drain(), self._calls.stop(self._settings.drain_s))
        await self._titles.stop()
        await self._deliveries.stop()
        await self._hooks.stop()
        await self._hubs.close()

    async def _close(self) -> None:
        await self._places.clones.close()
        await self._owners.close()
        await self._tool_servers.close()
        await self._stored_servers.close()
        for task in self._following:
            task.cancel()
            await asyncio.wait((task,))
        for peer in self._peers:
            await peer.close()


def _tools(settings: ExecutorSettings, web: HttpWeb) -> Mapping[str, Tool]:
    shelf = DiskWorkspace(os.path.realpath(settings.home / SKILLS_FOLDER), settings.file_bytes_max)
    return build_tools(settings, web, shelf)


async def _register_schemes(store: Peer, tools: Sequence[PluginToolAdapter]) -> None:
    """Register the schemes of tools with the store, before entries of them are written.

    Waits for a store that starts at the same time. Raises SettingsError if a scheme differs from the registered one,
    ConnectionError if the store stays away.
    """
    wanted = {scheme.name: scheme for tool in tools for scheme in tool.schemes}
    deadline_s = time.monotonic() + SCHEMES_WAIT_S
    while wanted:
        try:
            return await register_schemes(store, wanted.values())
        except TurnwrightError as error:
            names = ", ".join(f"{name}://" for name in wanted)
            if error.reason not in AWAY:
                await store.close()
                raise SettingsError(
                    f"{TOOLS.setting}: the schemes {names} cannot be registered: {error.message}"
                ) from None
            if time.monotonic() > deadline_s:
                await store.close()
                raise ConnectionError(f"no store registers the schemes {names} of plugins: {error.message}") from None
        await asyncio.sleep(SCHEMES_POLL_S)
    return None


def _observe(leases: Leases, scheduler: Scheduler, sandbox: Sandbox) -> None:
    count(LEASES_LOST, 0)
    observe(LEASES, leases.held)
    observe(LOOPS, scheduler.working)
    observe(SANDBOX, lambda: 1, {"backend": sandbox.backend})


async def _sandbox(settings: ExecutorSettings) -> Sandbox:
    """The sandbox for commands. Raises SettingsError if the settings require what the host cannot do."""
    try:
        writable, more = (
            [path for path in paths.split(os.pathsep) if path] for paths in (settings.sh_writable, settings.sh_readable)
        )
        sandbox = await find_sandbox(settings.sh_sandbox, settings.home, writable, more)
    except SandboxMissingError as error:
        raise SettingsError(f"TURNWRIGHT_SH_SANDBOX: {error}") from None
    if sandbox.refusal:
        _log.warning("commands_refused", problem=sandbox.refusal)
    return sandbox


def _boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


async def _workspaces(directories: str) -> list[str]:
    """The ids of the directories' workspaces. Raises OSError if one does not exist."""
    found = []
    for directory in filter(None, directories.split(os.pathsep)):
        workspace = await locate(directory)
        if workspace is None:
            raise FileNotFoundError(2, "there is no such directory to work in", directory)
        found.append(workspace.id)
    return found

"""The composition root of the process that calls MCP servers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import grpc
from turnwright.projects.v1 import project_service_pb2, project_service_pb2_grpc
from turnwright.store.v1 import read_pb2, store_service_pb2_grpc
from turnwright.tool.v1 import login_service_pb2_grpc, tool_service_pb2, tool_service_pb2_grpc
from turnwright_values.types import State, Tier

from turnwright_core.errors import MissingError
from turnwright_kit.health import check_ready
from turnwright_kit.in_process import LocalServers
from turnwright_kit.peer import Peer
from turnwright_kit.sandbox.finding import SandboxMissingError, find_sandbox
from turnwright_kit.service import Service
from turnwright_kit.settings import SettingsError
from turnwright_mcp.config import McpSettings
from turnwright_mcp.connections import Connections, PoolLimits
from turnwright_mcp.logins import Logins
from turnwright_mcp.oauth import LoginFiles
from turnwright_mcp.registration import McpSecrets
from turnwright_mcp.rpc.login_servicer import LoginServicer
from turnwright_mcp.rpc.tool_servicer import ToolServicer

GRPC_NAME: Final[str] = tool_service_pb2.DESCRIPTOR.services_by_name["ToolService"].full_name
CACHES_FOLDER: Final = "caches"
"""As executors have it for commands."""


def build(settings: McpSettings, secret: str, local_servers: LocalServers | None = None) -> Service:
    """The service, ready to be served."""
    wired = _Wired(settings, secret, local_servers)
    return Service(
        "mcp", GRPC_NAME, wired.register, floor=Tier.SYSTEM, start=wired.start, close=wired.close,
        settings=settings, dependencies={"store": lambda: check_ready(wired.store)},
    )  # fmt: skip


class _Wired:
    def __init__(self, settings: McpSettings, secret: str, local_servers: LocalServers | None) -> None:
        self._settings, self._secret, self._local_servers = settings, secret, local_servers
        self.store: Peer

    async def start(self) -> None:
        settings = self._settings
        try:
            sandbox = await find_sandbox(
                settings.sh_sandbox,
                settings.home,
                [path for path in settings.sh_writable.split(":") if path],
                [path for path in settings.sh_readable.split(":") if path],
            )
        except SandboxMissingError as error:
            raise SettingsError(f"TURNWRIGHT_SH_SANDBOX: {error}") from None
        self.store = Peer(
            "store",
            settings.store,
            self._secret,
            settings.rpc_timeout_s,
            Tier.SYSTEM,
            self._local_servers,
            settings.tls,
            service="mcp",
            service_token=settings.peer_token("store"),
        )
        hosts = tuple(one.strip().lower() for one in settings.mcp_hosts.split(",") if one.strip())
        limits = PoolLimits(settings.mcp_servers_max, settings.mcp_servers_all_max, settings.mcp_idle_s, hosts)
        secrets = McpSecrets(settings.home)
        files = LoginFiles(secrets)
        caches = settings.home / CACHES_FOLDER
        self._connections = Connections(sandbox, secrets, self._root_of, limits, files.auth, caches)
        self._logins = Logins(files, hosts, self._connections.renew)
        self._servicer = ToolServicer(self._connections, self._is_over)

    def register(self, server: grpc.aio.Server) -> None:
        tool_service_pb2_grpc.add_ToolServiceServicer_to_server(self._servicer, server)
        login_service_pb2_grpc.add_LoginServiceServicer_to_server(LoginServicer(self._logins), server)

    async def close(self) -> None:
        await self._logins.close()
        await self._servicer.close()
        await self._connections.close()
        await self.store.close()

    async def _root_of(self, project: str) -> Path | None:
        """The folder of a project on this host."""
        stub: project_service_pb2_grpc.ProjectServiceAsyncStub = project_service_pb2_grpc.ProjectServiceStub(
            self.store.channel
        )
        request = project_service_pb2.GetProjectRequest(project=project)
        try:
            root = Path((await self.store.call(stub.GetProject, request)).project.root)
        except MissingError:
            return None
        return root if root.is_absolute() and await asyncio.to_thread(root.is_dir) else None

    async def _is_over(self, project: str, run: str, path: str) -> bool:
        stub: store_service_pb2_grpc.StoreServiceAsyncStub = store_service_pb2_grpc.StoreServiceStub(self.store.channel)
        request = read_pb2.GetEntriesRequest(project=project, run=run, paths=[path], without_bodies=True)
        try:
            found = (await self.store.call(stub.GetEntries, request)).entries
        except MissingError:
            return False
        return any(State(one.state).is_settled for one in found)

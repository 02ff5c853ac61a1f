"""Logins at MCP servers: each step is taken by the process that calls those, for a server that is registered here.

What has changed by one has its row in the audit, as all changes have, though the store has no other part in it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import grpc
from turnwright.executor.v1.tools_pb2 import EndToolLoginRequest
from turnwright.store.v1 import policy_pb2, store_service_pb2_grpc
from turnwright.tool.v1 import login_service_pb2 as pb
from turnwright.tool.v1 import login_service_pb2_grpc

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.rpc.certificates import Tls
from turnwright_core.rpc.errors import from_rpc
from turnwright_executor.domain.tool_servers import MCP, AllowedHosts, Away, RegisteredServer
from turnwright_executor.peers.mcp_bridge import START_S, McpBridge
from turnwright_executor.peers.tool_channels import open_server
from turnwright_kit.identity.caller import current_caller
from turnwright_kit.logs import get_logger
from turnwright_kit.peer import Peer

STEP_S: Final = 50.0
"""Seconds that a step may take: more than the process allows each of its own."""

_Take = Callable[[pb.LoginRequest], Awaitable[pb.LoginResponse]]

_log = get_logger("tools")


class ToolLogins:
    """Takes the steps."""

    def __init__(
        self, store: Peer, own: Callable[[str, str], Awaitable[RegisteredServer | None]], bridge: McpBridge, tls: Tls
    ) -> None:
        """`own`: a server by its project, or the deployment (empty), and its name."""
        self._store, self._rows = store, store_service_pb2_grpc.StoreServiceStub(store.channel)
        self._own, self._bridge, self._tls = own, bridge, tls

    async def step(self, request: pb.LoginRequest) -> pb.LoginResponse:
        """Take a step for a project's own server, or the deployment's. Raises TurnwrightError."""
        given = getattr(request, str(request.WhichOneof("step")))
        project, name = given.project, given.server
        # Who administrates a project has no say about a server that others have, too.
        found = await self._own(project, name)
        if found is None or not found.is_mcp:
            whose = f"The project {project}" if project else "The deployment"
            text = f"{whose} has no MCP server {name[:64]!r} of its own."
            if project:
                text += " At a server that all projects have, operators log in with --deployment."
            raise fault(Reason.ENTRY_NOT_FOUND, text, path=name[:64])
        async with self._taking(found) as take:
            answer = await take(request)
            if not request.HasField("begin"):
                try:
                    row = policy_pb2.RecordToolLoginRequest(project=project, server=name)
                    await self._store.call(self._rows.RecordToolLogin, row, caller=current_caller())
                except TurnwrightError:
                    # No login counts without its row. One that has ended stays so: who asks again has both.
                    if request.HasField("complete"):
                        await take(_ending(project, name))
                    raise
        return answer

    async def log_out(self, project: str, name: str) -> None:
        """End the login at a server that is removed. It is removed, too, if nobody can do that now."""
        found = await self._own(project, name)
        if found is None or not found.has_logins:
            return
        try:
            async with self._taking(found) as take:
                await take(_ending(project, name))
        except TurnwrightError as error:
            _log.warning("mcp_logout_failed", project=project, server=name, reason=error.reason.name)

    @asynccontextmanager
    async def _taking(self, found: RegisteredServer) -> AsyncGenerator[_Take]:
        """How steps at a server are taken. Raises TurnwrightError."""
        try:
            bridge = await self._bridge.server()
            channel = await open_server(bridge, AllowedHosts(), self._tls, None, START_S)
        except Away as away:
            raise fault(Reason.SERVICE_UNAVAILABLE, str(away), service=MCP, address="") from None
        async with channel:
            metadata = (*found.headers, *self._bridge.metadata(found))
            stub: login_service_pb2_grpc.LoginServiceAsyncStub = login_service_pb2_grpc.LoginServiceStub(channel)

            async def take(step: pb.LoginRequest) -> pb.LoginResponse:
                try:
                    return await stub.Login(step, timeout=STEP_S, metadata=metadata)
                except grpc.aio.AioRpcError as error:
                    raise from_rpc(error, MCP, bridge.address) from None

            yield take


def _ending(project: str, name: str) -> pb.LoginRequest:
    return pb.LoginRequest(end=EndToolLoginRequest(project=project, server=name))

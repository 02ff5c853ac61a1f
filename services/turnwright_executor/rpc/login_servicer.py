"""Rpcs by which clients log in at MCP servers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from turnwright.executor.v1 import tools_pb2 as pb
from turnwright.tool.v1 import login_service_pb2 as login_pb


class ToolLoginRpcs:
    """What the rpcs declare in the contract is checked before: that the caller administrates what they name."""

    _login_step: Callable[[str, str, login_pb.LoginRequest], Awaitable[login_pb.LoginResponse]]

    async def BeginToolLogin(self, request: pb.BeginToolLoginRequest, context: Any) -> pb.BeginToolLoginResponse:
        begin = login_pb.BeginLogin(
            redirect=request.redirect, client_id=request.client_id, client_secret=request.client_secret
        )
        begun = await self._login_step(request.project, request.server, login_pb.LoginRequest(begin=begin))
        return pb.BeginToolLoginResponse(login=begun.login, address=begun.address)

    async def CompleteToolLogin(
        self, request: pb.CompleteToolLoginRequest, context: Any
    ) -> pb.CompleteToolLoginResponse:
        complete = login_pb.CompleteLogin(login=request.login, callback=request.callback)
        await self._login_step(request.project, request.server, login_pb.LoginRequest(complete=complete))
        return pb.CompleteToolLoginResponse()

    async def EndToolLogin(self, request: pb.EndToolLoginRequest, context: Any) -> pb.EndToolLoginResponse:
        await self._login_step(request.project, request.server, login_pb.LoginRequest(end=login_pb.EndLogin()))
        return pb.EndToolLoginResponse()

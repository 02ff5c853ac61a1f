"""Rpcs by which clients log in at MCP servers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from turnwright.executor.v1 import tools_pb2 as pb
from turnwright.tool.v1.login_service_pb2 import LoginRequest, LoginResponse


class ToolLoginRpcs:
    """What the rpcs declare in the contract is checked before: that the caller administrates what they name."""

    _login_step: Callable[[LoginRequest], Awaitable[LoginResponse]]

    async def BeginToolLogin(self, request: pb.BeginToolLoginRequest, context: Any) -> pb.BeginToolLoginResponse:
        return (await self._login_step(LoginRequest(begin=request))).begun

    async def CompleteToolLogin(
        self, request: pb.CompleteToolLoginRequest, context: Any
    ) -> pb.CompleteToolLoginResponse:
        await self._login_step(LoginRequest(complete=request))
        return pb.CompleteToolLoginResponse()

    async def EndToolLogin(self, request: pb.EndToolLoginRequest, context: Any) -> pb.EndToolLoginResponse:
        await self._login_step(LoginRequest(end=request))
        return pb.EndToolLoginResponse()

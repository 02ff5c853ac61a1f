"""LoginService: the steps of logins at MCP servers."""

from __future__ import annotations

from typing import Any

from turnwright.executor.v1.tools_pb2 import BeginToolLoginResponse
from turnwright.tool.v1 import login_service_pb2 as pb
from turnwright.tool.v1 import login_service_pb2_grpc

from turnwright_core.errors import Reason, fault
from turnwright_mcp.logins import LoginFailedError, Logins, LoginUnknownError
from turnwright_mcp.rpc.tool_servicer import server_of


class LoginServicer(login_service_pb2_grpc.LoginServiceServicer):
    """Implements LoginService."""

    def __init__(self, logins: Logins) -> None:
        self._logins = logins

    async def Login(self, request: pb.LoginRequest, context: Any) -> pb.LoginResponse:
        step = str(request.WhichOneof("step"))
        server = server_of(getattr(request, step).project, context, is_of_project=False)
        try:
            match step:
                case "begin":
                    login, address = await self._logins.begin(server, request.begin)
                    return pb.LoginResponse(begun=BeginToolLoginResponse(login=login, address=address))
                case "complete":
                    await self._logins.complete(server, request.complete.login, request.complete.callback)
                case _:
                    await self._logins.end(server)
        except LoginFailedError as error:
            text = f"The login at the MCP server {server.name} has failed: {error}."
            raise fault(Reason.LOGIN_NEEDED, text, server=server.name) from None
        except LoginUnknownError:
            text = f"No such login at {server.name} waits any more: begin again."
            raise fault(Reason.ENTRY_NOT_FOUND, text, path=server.name) from None
        return pb.LoginResponse()

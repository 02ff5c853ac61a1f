"""An authorization server and a server of MCP that wants its tokens, with the official SDK: `python oauth_server.py PORT`.

Nobody is asked: who opens the address is sent back with a code, or with a refusal. A control address, /control?KEY=VALUE,
says how it behaves from then on; GET /seen tells what was asked of it, as JSON.
"""

import asyncio
import json
import secrets
import sys
import time

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthToken
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

PORT = int(sys.argv[1])
HERE = f"http://127.0.0.1:{PORT}"


class Logins:
    """Implements the SDK's OAuthAuthorizationServerProvider; a refresh token counts once."""

    def __init__(self):
        self.clients, self.codes, self.refreshing, self.tokens = {}, {}, {}, {}
        self.how = {
            "expires_in": 3600,
            "authorize": "grants",
            "refresh": "grants",
            "exchange": "grants",
            "resource": "",
        }
        self.seen = {"registered": 0, "exchanged": 0, "asked": 0, "refreshed": 0, "revoked": 0}

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.seen["registered"] += 1
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params):
        if self.how["authorize"] == "refuses":
            return construct_redirect_uri(str(params.redirect_uri), error="access_denied", state=params.state)
        code = f"code-{secrets.token_hex(8)}"
        self.codes[code] = AuthorizationCode(
            code=code, scopes=params.scopes or [], expires_at=time.time() + 600, client_id=client.client_id,
            code_challenge=params.code_challenge, redirect_uri=params.redirect_uri, resource=params.resource,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
        )  # fmt: skip
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client, authorization_code):
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client, authorization_code):
        if self.how["exchange"] == "refuses":
            raise TokenError("invalid_grant", f"not {authorization_code.code}, and here is access-leaked")
        self.seen["exchanged"] += 1
        del self.codes[authorization_code.code]
        return self.issued(client, authorization_code.resource)

    def issued(self, client, resource=None):
        access, refresh = f"access-{secrets.token_hex(8)}", f"refresh-{secrets.token_hex(8)}"
        self.tokens[access] = AccessToken(token=access, client_id=client.client_id, scopes=[], resource=resource)
        self.refreshing[refresh] = RefreshToken(token=refresh, client_id=client.client_id, scopes=[])
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=int(self.how["expires_in"]))

    async def load_refresh_token(self, client, refresh_token):
        self.seen["asked"] += 1
        return self.refreshing.get(refresh_token)

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        if self.how["refresh"] == "refuses":
            raise TokenError("invalid_grant")
        self.seen["refreshed"] += 1
        del self.refreshing[refresh_token.token]
        return self.issued(client)

    async def load_access_token(self, token):
        return self.tokens.get(token)

    async def revoke_token(self, token):
        self.seen["revoked"] += 1
        self.tokens.pop(token.token, None)
        self.refreshing.pop(token.token, None)


logins = Logins()
server = MCPServer(
    "guarded",
    auth_server_provider=logins,
    auth=AuthSettings(
        issuer_url=HERE,
        resource_server_url=f"{HERE}/mcp",
        client_registration_options=ClientRegistrationOptions(enabled=True),
        revocation_options=RevocationOptions(enabled=True),
        validate_token_resource=False,
    ),
)


@server.tool()
async def whoami() -> str:
    return "somebody who has logged in"


@server.custom_route("/control", ["GET"])
async def control(request: Request) -> Response:
    logins.how.update(request.query_params)
    if "forget" in request.query_params:
        logins.tokens.clear()
    return JSONResponse(logins.how)


@server.custom_route("/seen", ["GET"])
async def seen(request: Request) -> Response:
    return JSONResponse({**logins.seen, "tokens": [*logins.tokens, *logins.refreshing]})


ENDPOINTS = {
    "authorization_endpoint": f"{HERE}/authorize",
    "token_endpoint": f"{HERE}/token",
    "registration_endpoint": f"{HERE}/register",
    "response_types_supported": ["code"],
}


class Led:
    """Says that its authorization server is elsewhere, once it was told to."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        app = self.app
        path, how = scope.get("path", ""), logins.how
        if path.startswith("/.well-known/oauth-protected-resource") and how.get("issuer"):
            app = JSONResponse({"resource": f"{HERE}/mcp", "authorization_servers": [how["issuer"]]})
        if path.startswith("/.well-known/oauth-authorization-server") and how.get("endpoint"):
            app = JSONResponse({"issuer": HERE, **ENDPOINTS, **json.loads(how["endpoint"])})
        await app(scope, receive, send)


async def main():
    made = uvicorn.Server(uvicorn.Config(Led(server.streamable_http_app()), port=PORT, log_level="error"))
    await made.serve()


asyncio.run(main())

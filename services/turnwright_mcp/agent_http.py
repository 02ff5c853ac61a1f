"""The agent as an MCP server by streamable HTTP, with the rights of each caller.

The token of a request is what the executor is called with for it: nothing here decides who may do what. A session is
found only with the token that began it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Final

from connectrpc.errors import ConnectError
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from msgspec import Struct

from turnwright_core.errors import Reason, TurnwrightError, UnauthenticatedError, fault
from turnwright_core.rpc.certificates import Tls
from turnwright_kit.caller_ledger import CallerLedger, CallerLimits
from turnwright_kit.http.door import ADMITTED
from turnwright_kit.http.exchange import Exchange, Receive, Scope, Send
from turnwright_kit.http.listener import HttpListener
from turnwright_kit.settings import HttpBounds
from turnwright_mcp.agent import AgentTools, agent_server

PATH: Final = "/mcp"
SESSION_IDLE_S: Final = 1800.0
"""Seconds without a request, after which a session ends."""
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
"""Longest body of a request, in bytes."""
_LOCAL: Final = ("localhost", "127.0.0.1", "[::1]")


class AgentPort(Struct, frozen=True):
    """Where the agent is served."""

    host: str
    port: int
    names: Collection[str] = ()
    """Further names by which it may be called, as a proxy in front sends them in `Host`."""
    sessions_max: int = 200
    """Sessions at a time, of all callers together. Clients of 2026 and later have none."""
    caller_sessions_max: int = 20
    """Those of one caller, whatever tokens it has."""

    @property
    def place(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def security(self) -> TransportSecuritySettings:
        """Else a page that has its own name resolve to this address would be of the same origin."""
        hosts = [f"{name}{port}" for name in (*_LOCAL, self.place, *self.names) for port in ("", ":*")]
        origins = [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")]
        return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)


@asynccontextmanager
async def open_agent(tools: AgentTools, port: AgentPort, tls: Tls) -> AsyncGenerator[str]:
    """Serve for the duration of the block, and give the URL. Calls end with it, and their tasks go on.

    `tools`: their connection is used, not their rights. Raises OSError if the address cannot be bound,
    TurnwrightError if others could read the tokens.
    """
    server = agent_server(lambda context: context.request.state.tools)  # type: ignore[union-attr]  # by HTTP
    sessions = _Sessions(
        server,
        security_settings=port.security(),
        session_idle_timeout=SESSION_IDLE_S,
        max_request_body_size=BODY_BYTES_MAX,
        max_sessions=port.sessions_max,
    )
    sessions.caller_sessions_max = port.caller_sessions_max
    listener = HttpListener(_Door(tools, sessions), f"{port.place}:{port.port}", tls)
    async with sessions.run():
        await listener.start()
        try:
            yield f"{listener.url}{PATH}"
        finally:
            tools.leaving.set()
            listener.close()
            await listener.ended(0)


_ADMIT: Final = StreamableHTTPSessionManager._admit_session  # noqa: SLF001 - one without it fails here, not in silence


class _Sessions(StreamableHTTPSessionManager):
    """The sessions, and a bound for each caller, which those of the SDK have not."""

    caller_sessions_max: int

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        assert requestor is not None, "the door says whose a request is"
        whose, limit = requestor["subject"], self.caller_sessions_max
        if sum(one["subject"] == whose for one in self._session_owners.values()) >= limit:
            text = f"This caller has {limit} sessions open, the most of one: end some (DELETE), then retry."
            raise fault(Reason.QUEUE_FULL, text, queue="sessions", limit=limit)
        return _ADMIT(self, requestor)


class _Door:
    """Lets in whom the executor knows."""

    bounds = HttpBounds()

    def __init__(self, tools: AgentTools, sessions: StreamableHTTPSessionManager) -> None:
        self._tools, self._sessions = tools, sessions
        self._ledger = CallerLedger(CallerLimits())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send, (), self.bounds)
        if scope["path"] != PATH:
            await exchange.refuse(404, "not_found", f"The agent is at {PATH}.")
            return
        scheme, _, token = exchange.headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            message = "Send a token of the executor with each request: `authorization: Bearer TOKEN`."
            await exchange.refuse(401, "unauthenticated", message)
            return
        try:
            principal, tools = await self._tools.of_caller(token)
        except TurnwrightError as error:
            is_stranger = isinstance(error, UnauthenticatedError)
            status, code = (401, "unauthenticated") if is_stranger else (503, "unavailable")
            await exchange.refuse(status, code, error.message)
            return
        scope["state"].update({ADMITTED: True, "tools": tools})
        owner = sha256(token.encode()).hexdigest()
        scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=owner, scopes=[], subject=principal))
        held = 0

        def take_in(size: int) -> None:
            nonlocal held
            held += size
            self._ledger.take_in(principal, size)

        exchange.take_in = take_in
        try:
            await self._sessions.handle_request(scope, exchange.receive, exchange.send)  # type: ignore[arg-type]
        except ConnectError as error:
            await exchange.refuse(408, "deadline_exceeded", error.message)
        except TurnwrightError as error:
            await exchange.refuse(429, "resource_exhausted", error.message)
        finally:
            take_in(-held)

    def close(self) -> None:
        """The connections end."""

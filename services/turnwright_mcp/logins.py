"""Logins at servers that want OAuth, by the official SDK: from the first request to the tokens that are kept.

A login waits here, in memory, until its person is back from the authorization server: what it has not written down is
of no use to anybody who finds it. A server says where its authorization server is, so each address of a login is held
against what the operator allows, also the one that a person is to open.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.exceptions import OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken
from mcp.shared.auth_utils import calculate_token_expiry
from pydantic import AnyUrl
from turnwright.executor.v1.tools_pb2 import BeginToolLoginRequest

from turnwright_core.rpc.transport import is_loopback
from turnwright_kit.logs import get_logger
from turnwright_mcp.connection import words_of
from turnwright_mcp.oauth import Login, LoginFile, LoginFiles, client_metadata
from turnwright_mcp.registration import McpServer, check_host
from turnwright_mcp.transports import Complaint, bounded_client

PENDING_S: Final = 600.0
"""Seconds that a person may take."""
PENDING_MAX: Final = 256
"""Logins that wait at a time; the oldest gives way."""
STEP_S: Final = 40.0
"""Seconds that each of its two steps may take."""
CALLBACK_CHARS_MAX: Final = 8192
_REDIRECT: Final = re.compile(r"http://127\.0\.0\.1:\d{1,5}/callback")
_WORD: Final = re.compile(r"[a-z_]{1,40}")
_STATUS: Final = re.compile(r"\b[3-5]\d\d\b")
_HEADERS: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
_REQUEST: Final = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{},"clientInfo":{"name":"turnwright","version":"0"}}}'
)
"""What makes a server ask for a login."""

_log = get_logger("mcp")


class LoginFailedError(Exception):
    """No login came of it; the text says why, and holds nothing secret."""


class LoginUnknownError(Exception):
    """There is no such login that waits."""


class Logins:
    """The logins that wait, and those that are kept. Closed at the end of the process."""

    def __init__(
        self, files: LoginFiles, hosts: tuple[str, ...], changed: Callable[[McpServer], Awaitable[None]]
    ) -> None:
        """`hosts`: see PoolLimits. `changed`: gets the server whose login has begun to count, or has ended."""
        self._files, self._hosts, self._changed = files, hosts, changed
        self._pending: dict[McpServer, _Pending] = {}

    async def begin(self, server: McpServer, given: BeginToolLoginRequest) -> tuple[str, str]:
        """The id of the login, and the address to open. Raises LoginFailedError."""
        if not _REDIRECT.fullmatch(given.redirect):
            raise LoginFailedError("redirect is http://127.0.0.1:PORT/callback")
        try:
            url = server.registration().url
        except ValueError as error:
            raise LoginFailedError(str(error)) from None
        if not url:
            raise LoginFailedError("only a server with a URL has a login")
        pending = _Pending(self._files.of(server, url), given, partial(self._allow, server))
        while server in self._pending or len(self._pending) >= PENDING_MAX:
            await self._drop(server if server in self._pending else next(iter(self._pending)))
        self._pending[server] = pending
        pending.start()
        try:
            return pending.id, await pending.address()
        except BaseException:
            await self._drop(server, pending)
            raise

    async def complete(self, server: McpServer, login: str, callback: str) -> None:
        """Raises LoginUnknownError, LoginFailedError."""
        pending = self._pending.get(server)
        if pending is None or pending.is_over or not secrets.compare_digest(pending.id.encode(), login.encode()):
            raise LoginUnknownError
        try:
            await pending.completed(callback)
        finally:
            await self._drop(server, pending)
        await self._changed(server)

    async def end(self, server: McpServer) -> None:
        """Forget a login, and have its tokens revoked where that is possible. Raises LoginFailedError."""
        await self._drop(server)
        try:
            file = self._files.of(server, server.registration().url)
            try:
                login = file.read()
            finally:
                file.delete()
        except (OSError, ValueError) as error:
            raise LoginFailedError(words_of(error)) from None
        await self._changed(server)
        try:
            async with bounded_client(partial(self._allow, server), Complaint(), read_s=STEP_S) as client:
                for request in login.revoking() if login else ():
                    await client.send(request)
        except httpx2.HTTPError as error:
            _log.warning("mcp_token_not_revoked", server=server.name, problem=type(error).__name__)

    async def close(self) -> None:
        for server in list(self._pending):
            await self._drop(server)

    async def _drop(self, server: McpServer, only: _Pending | None = None) -> None:
        """End what waits. `only`: unless another one has begun since."""
        found = self._pending.get(server)
        if found is not None and only in (None, found):
            del self._pending[server]
            await found.stop()

    def _allow(self, server: McpServer, url: str) -> None:
        """Raises ValueError for an address that no login may lead to."""
        check_host(server, url, self._hosts)
        parts = urlsplit(url)
        is_here = _is_here(url)
        if is_here and not _is_here(server.registration().url):
            # What listens there takes requests for those of its own host.
            raise ValueError(f"a server elsewhere leads to no address of this host, and {parts.netloc} is one")
        if parts.scheme != "https" and not (parts.scheme == "http" and is_here):
            raise ValueError(f"a token is sent by https only, and {parts.scheme}://{parts.netloc} is not")


class _Pending:
    """One login. Also the SDK's TokenStorage: it begins with nothing, and what it is given is kept."""

    def __init__(self, file: LoginFile, given: BeginToolLoginRequest, allow: Callable[[str], None]) -> None:
        self.id = secrets.token_urlsafe(24)
        self._file, self._given, self._allow = file, given, allow
        self._complaint = Complaint()
        loop = asyncio.get_running_loop()
        self._address: asyncio.Future[str] = loop.create_future()
        self._returned: asyncio.Future[AuthorizationCodeResult] = loop.create_future()
        self._provider = OAuthClientProvider(file.url, client_metadata(given.redirect), self, self._open, self._back)
        self._task: asyncio.Task[None]

    @property
    def is_over(self) -> bool:
        return self._task.done() or self._returned.done()

    def start(self) -> None:
        self._task = asyncio.create_task(self._log_in(), name="mcp login")

    async def address(self) -> str:
        await asyncio.wait((self._task, self._address), timeout=STEP_S, return_when=asyncio.FIRST_COMPLETED)
        if self._address.done():
            return self._address.result()
        if not self._task.done():
            raise LoginFailedError(f"its authorization server has not answered within {STEP_S:g} s")
        raise LoginFailedError(self._problem())

    async def completed(self, callback: str) -> None:
        """Raises LoginFailedError."""
        if len(callback) > CALLBACK_CHARS_MAX:
            raise LoginFailedError(f"the address has more than {CALLBACK_CHARS_MAX} characters")
        query = _query(callback.strip())
        if "error" in query:
            raise LoginFailedError(f"its authorization server has refused the login: {_word(query['error'])}")
        code = query.get("code", "")
        if not code:
            raise LoginFailedError("the address is not the one that the browser was sent to: it has no `code`")
        if query.get("state") != _query(self._address.result())["state"]:
            raise LoginFailedError("the address belongs to another login: log in again, with the address printed then")
        self._returned.set_result(AuthorizationCodeResult(code=code, state=query.get("state"), iss=query.get("iss")))
        await asyncio.wait((self._task,), timeout=STEP_S)
        if not self._task.done():
            raise LoginFailedError(f"its authorization server has not answered within {STEP_S:g} s")
        if self._task.cancelled() or self._task.exception() is not None:
            raise LoginFailedError(self._problem())

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _log_in(self) -> None:
        client = bounded_client(self._allow, self._complaint, auth=self._provider, read_s=STEP_S)
        asking = client.stream("POST", self._file.url, content=_REQUEST, headers=_HEADERS)
        async with asyncio.timeout(PENDING_S), client, asking as answer:
            if not self._address.done():
                raise LoginFailedError(f"it asks for none: without one it answers HTTP {answer.status_code}")

    async def _open(self, address: str) -> None:
        self._allow(address)
        self._address.set_result(address)

    async def _back(self) -> AuthorizationCodeResult:
        return await self._returned

    def _problem(self) -> str:
        if self._task.cancelled():
            return "another one has begun since, or somebody has logged out"
        if self._complaint.reason:
            return self._complaint.reason
        error = self._task.exception()
        if isinstance(error, OAuthRegistrationError | OAuthTokenError):
            # Its text goes on with what was answered.
            what = "register us as a client" if isinstance(error, OAuthRegistrationError) else "give a token"
            found = _STATUS.search(str(error))
            return f"its authorization server does not {what}{f' (HTTP {found[0]})' if found else ''}"
        if isinstance(error, OAuthFlowError | LoginFailedError | ValueError | httpx2.ConnectError):
            return words_of(error)
        if isinstance(error, TimeoutError):
            return "the login has taken too long"
        return f"it has broken off ({type(error).__name__})"

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        given = self._given
        if not given.client_id:
            return None
        return OAuthClientInformationFull(
            client_id=given.client_id,
            client_secret=given.client_secret or None,
            redirect_uris=[AnyUrl(given.redirect)],
            token_endpoint_auth_method="client_secret_post" if given.client_secret else "none",
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """It is kept with the tokens."""

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context = self._provider.context
        found, client = context.oauth_metadata, context.client_info
        assert client is not None
        origin = context.get_authorization_base_url(self._file.url)
        has_resource = context.should_include_resource_param(context.protocol_version)
        revocation = found.revocation_endpoint if found else None
        self._file.write(
            Login(
                url=self._file.url,
                token_endpoint=str(found.token_endpoint) if found else f"{origin}/token",
                revocation_endpoint=str(revocation or ""),
                resource=context.get_resource_url() if has_resource else "",
                client=client,
                token=tokens,
                ends_s=calculate_token_expiry(tokens.expires_in),
            )
        )


def _query(address: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


def _is_here(url: str) -> bool:
    return is_loopback(f"{urlsplit(url).hostname}:0")


def _word(text: str) -> str:
    return text if _WORD.fullmatch(text) else "it does not say why"

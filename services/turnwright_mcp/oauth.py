"""Tokens of servers that want OAuth: kept in private files, sent with requests, and renewed when they end.

A token is sent to the URL that somebody has logged in for, and to no other that is registered by the same name later.
Where it is renewed was said at the login: a server cannot lead anybody anywhere afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import httpx2
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from mcp.shared.auth_utils import calculate_token_expiry
from msgspec import Struct, json
from pydantic import AnyUrl, BaseModel, ValidationError

from turnwright_core.private_files import read_private, replacing_atomically
from turnwright_mcp.connection import LOGIN_NEEDED
from turnwright_mcp.registration import McpSecrets, McpServer
from turnwright_mcp.transports import Complaint

AUTHORIZATION: Final = "authorization"
RENEWED_BEFORE_S: Final = 10.0
"""Seconds before its end from which on a token is not used any more."""
OK: Final = 200
UNAUTHORIZED: Final = 401
_REFUSED: Final = (400, 401)
"""What a token endpoint answers if the login has ended. Anything else passes."""

for _name in ("oauth2", "utils"):
    # It logs what authorization servers answer, and that may be a token.
    logging.getLogger(f"mcp.client.auth.{_name}").disabled = True


class Login(BaseModel):
    """A login: the tokens, and where and as which client they are renewed."""

    url: str
    """The server's, as it was registered."""
    token_endpoint: str
    revocation_endpoint: str = ""
    resource: str = ""
    """What tokens are for, as the authorization server is told; empty: it is not."""
    client: OAuthClientInformationFull
    token: OAuthToken
    ends_s: float | None = None
    """When the token ends, in seconds since 1970; None: nobody has said."""

    @property
    def is_over(self) -> bool:
        return self.ends_s is not None and time.time() > self.ends_s - RENEWED_BEFORE_S

    def renewing(self) -> httpx2.Request:
        """What asks for another token."""
        return self._asking(self.token_endpoint, grant_type="refresh_token", refresh_token=self.token.refresh_token)

    def revoking(self) -> list[httpx2.Request]:
        """What says that the tokens are not needed any more."""
        named = (("refresh_token", self.token.refresh_token), ("access_token", self.token.access_token))
        return [
            self._asking(self.revocation_endpoint, token=token, token_type_hint=hint)
            for hint, token in named
            if token and self.revocation_endpoint
        ]

    def renewed(self, answer: bytes) -> Login:
        """The login with the token that the endpoint has answered. Raises ValueError."""
        token = OAuthToken.model_validate_json(answer)
        # What is left out stays as it was (RFC 6749, 6).
        kept = {name: getattr(self.token, name) for name in ("refresh_token", "scope") if not getattr(token, name)}
        token = token.model_copy(update=kept)
        return self.model_copy(update={"token": token, "ends_s": calculate_token_expiry(token.expires_in)})

    def _asking(self, endpoint: str, **data: str | None) -> httpx2.Request:
        # How the client says who it is depends on what it has agreed with the authorization server.
        given = {name: value for name, value in {**data, "client_id": self.client.client_id}.items() if value}
        if self.resource and "grant_type" in given:
            given["resource"] = self.resource
        context = OAuthContext(self.url, client_metadata("http://127.0.0.1/"), None, None, None)  # type: ignore[arg-type]
        context.client_info = self.client
        given, headers = context.prepare_token_auth(given, {})
        return httpx2.Request("POST", endpoint, data=given, headers=headers)


def client_metadata(redirect: str) -> OAuthClientMetadata:
    """What we register ourselves as."""
    return OAuthClientMetadata(
        client_name="Turnwright",
        redirect_uris=[AnyUrl(redirect)],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
    )


class LoginFile(Struct, frozen=True):
    """Where a login is kept."""

    path: Path
    url: str

    def read(self) -> Login | None:
        """The login; None if there is none for this URL. Raises ValueError and OSError for a file that is unfit."""
        try:
            found = Login.model_validate_json(read_private(self.path))
        except FileNotFoundError:
            return None
        except ValidationError:
            # Its own text has what it was given.
            raise ValueError(f"{self.path} cannot be read: log in again") from None
        return found if found.url == self.url else None

    def write(self, login: Login) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing_atomically(self.path) as scratch:
            scratch.write_text(login.model_dump_json(exclude_none=True))

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)


class LoginFiles:
    """The logins of all servers, each renewed by one request at a time."""

    def __init__(self, secrets: McpSecrets) -> None:
        self._secrets = secrets
        self._renewing: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    def of(self, server: McpServer, url: str) -> LoginFile:
        return LoginFile(self._secrets.folder(server) / f"oauth-{server.name}.json", url)

    def auth(self, server: McpServer, url: str, complaint: Complaint) -> httpx2.Auth:
        """What gives requests their token. Nobody is asked to log in: the complaint says that somebody has to."""
        file = self.of(server, url)
        return LoginAuth(file, self._renewing.setdefault(file.path, asyncio.Lock()), server, complaint)


class LoginAuth(httpx2.Auth):
    """Sends the token of a login, and renews it before and when it ends. Without a login it sends none."""

    def __init__(self, file: LoginFile, renewing: asyncio.Lock, server: McpServer, complaint: Complaint) -> None:
        self._file, self._renewing, self._server, self._complaint = file, renewing, server, complaint

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        has_own = AUTHORIZATION in request.headers
        refused = ""
        while True:
            login = None if has_own else self._file.read()
            if login is not None and (login.is_over or login.token.access_token == refused):
                async with self._renewing:
                    latest = self._file.read()
                    if latest == login:
                        latest = None
                        if login.token.refresh_token:
                            answer = yield login.renewing()
                            latest = self._renewed(login, answer.status_code, await answer.aread())
                    login = latest
            if login is not None:
                request.headers[AUTHORIZATION] = f"Bearer {login.token.access_token}"
            answer = yield request
            if answer.status_code != UNAUTHORIZED:
                self._complaint.login = ""
                return
            if login is None or refused:
                self._refuse(answer)
                return
            refused = login.token.access_token

    def _refuse(self, answer: httpx2.Response) -> None:
        """Have the SDK read the answer as a refusal of this one request; others may be under way."""
        whose = " --deployment" if self._server.is_shared else ""
        self._complaint.login = (
            f"it wants a login (HTTP {UNAUTHORIZED}): `turnwright mcp login {self._server.name}{whose}`, or register "
            "it again with its key as --header"
        )
        error = {"code": LOGIN_NEEDED, "message": self._complaint.login}
        answer.headers = httpx2.Headers({"content-type": "application/json"})
        answer.stream = _Refusal(answer.stream, json.encode({"jsonrpc": "2.0", "id": None, "error": error}))

    def _renewed(self, login: Login, status: int, answer: bytes) -> Login | None:
        """The login with another token; None if it has ended."""
        if status in _REFUSED:
            # Another process may have renewed it meanwhile, and the token for it counts once.
            latest = self._file.read()
            return None if latest == login else latest
        try:
            renewed = login.renewed(answer) if status == OK else None
        except ValueError:
            renewed = None
        if renewed is None:
            self._complaint.reason = f"its authorization server does not renew the token now (HTTP {status})"
            raise httpx2.ConnectError(self._complaint.reason)
        if self._file.read() == login:
            # Else somebody has logged out, or in again.
            self._file.write(renewed)
        return renewed


class _Refusal(httpx2.AsyncByteStream):
    """Our words in the place of an answer."""

    def __init__(self, inner: object, words: bytes) -> None:
        self._inner, self._words = inner, words

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        yield self._words

    async def aclose(self) -> None:
        await self._inner.aclose()  # type: ignore[attr-defined]

"""Tokens of servers that want OAuth, in private files: put there by who has logged in, made fresh as needed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from msgspec import Struct
from pydantic import AnyUrl

from turnwright_core.private_files import read_private, replacing_atomically
from turnwright_mcp.registration import McpSecrets, McpServer

REDIRECT: Final = "http://127.0.0.1:7446/callback"
"""What a client that is registered for us names as its own address; nobody is sent there."""


class LoginNeededError(Exception):
    """Somebody has to log in. The text says how."""


class StoredTokens(Struct, frozen=True):
    """The tokens that there are."""

    secrets: McpSecrets

    def auth(self, server: McpServer, url: str) -> httpx2.Auth:
        """What gives requests their token, and makes it fresh. Nobody is asked to log in."""
        folder = self.secrets.folder(server)
        token = folder / f"oauth-{server.name}.token"

        async def refuse(_: str) -> None:
            raise LoginNeededError(f"its token is missing or has ended: write a new one into {token}")

        metadata = OAuthClientMetadata(
            client_name="Turnwright",
            redirect_uris=[AnyUrl(REDIRECT)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
        )
        return OAuthClientProvider(url, metadata, TokenFiles(token, folder / f"oauth-{server.name}.client"), refuse)


class TokenFiles(Struct, frozen=True):
    """Implements the SDK's TokenStorage."""

    token: Path
    client: Path

    async def get_tokens(self) -> OAuthToken | None:
        text = _read(self.token)
        return OAuthToken.model_validate_json(text) if text else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        _write(self.token, tokens.model_dump_json(exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        text = _read(self.client)
        return OAuthClientInformationFull.model_validate_json(text) if text else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        _write(self.client, client_info.model_dump_json(exclude_none=True))


def _read(path: Path) -> bytes:
    try:
        return read_private(path)
    except FileNotFoundError:
        return b""


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing_atomically(path) as scratch:
        scratch.write_text(text)

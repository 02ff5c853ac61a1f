"""How an MCP server is registered: its command or its URL, what it is given, and what is believed of it.

A registration comes with each call, as JSON in a header of the tool server that it is in the executor's list. What a
project's owner has registered is as untrusted as the project: its secrets are that project's alone, and a URL is called
only where the operator says. Source: docs/adr/0084.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote, urlsplit

from msgspec import DecodeError, Struct, json

from turnwright_core.private_files import read_private

T = TypeVar("T")

TEXT_CHARS_MAX: Final = 4096
"""Longest registration: a header holds it."""
START_S: Final = 30.0
"""Seconds that a server may take to start."""
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
_HEADER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SECRETS: Final = "mcp-secrets"
_SHARED: Final = "_shared"


class ToolEffect(StrEnum):
    """What is believed of a tool in the place of its own hints."""

    READ_ONLY = "read_only"
    """It changes nothing: nobody is asked, and an interrupted call is made again."""
    IDEMPOTENT = "idempotent"
    """Somebody is asked; an interrupted call is made again."""
    OUTSIDE = "outside"
    """Somebody is asked; an interrupted call is not made again."""
    HINTS = "hints"
    """What the server says of it. Without hints: outside."""


class McpRegistration(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a server is reached."""

    command: str = ""
    """Program that speaks the protocol on its standard streams, in the sandbox: in the project's folder if it is that
    project's own, else in `/`."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    """Variables of the program. `${NAME}` in a value stands for the secret of that name."""
    url: str = ""
    """Where a server speaks streamable HTTP."""
    headers: Mapping[str, str] = {}
    """What it is sent with each request, with `${NAME}` for secrets."""
    effects: Mapping[str, ToolEffect] = {}
    """What is believed of tools, by their names; `*`: of all others."""
    sampling: str = ""
    """Model that it may ask by way of us, at the cost of whoever asked for the task; empty: none."""
    start_s: float = START_S

    def effect_of(self, tool: str) -> ToolEffect:
        return self.effects.get(tool) or self.effects.get("*") or ToolEffect.HINTS


class AgentRegistration(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How an agent is started that speaks the Agent Client Protocol."""

    command: str
    """Program that speaks the protocol on its standard streams, in the sandbox; it is told of the project's folder."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    """As of an MCP server."""
    description: str = ""
    """What models read of it: what it is good at."""
    start_s: float = START_S


_DECODER: Final = json.Decoder(McpRegistration)
_AGENT_DECODER: Final = json.Decoder(AgentRegistration)


class McpServer(Struct, frozen=True):
    """One server, or one agent, as one project sees it."""

    project: str
    name: str
    text: str
    """Its registration, as JSON."""
    is_shared: bool
    """Whether the operator has registered it."""
    is_agent: bool = False
    """Whether it speaks the Agent Client Protocol."""

    def registration(self) -> McpRegistration:
        """Raises ValueError with a sentence."""
        return read_registration(self.text)

    def agent(self) -> AgentRegistration:
        """Raises ValueError with a sentence."""
        if not self.is_shared:
            raise ValueError("agents of other vendors are the operator's to register")
        found = _decoded(self.text, _AGENT_DECODER)
        _check_program(found)
        return found


def read_registration(text: str) -> McpRegistration:
    """A registration. Raises ValueError with a sentence."""
    found = _decoded(text, _DECODER)
    if bool(found.command) == bool(found.url):
        raise ValueError("a server has either a command or a URL")
    if found.url:
        _check_url(found)
    elif found.headers:
        raise ValueError("headers are for a server with a URL")
    _check_program(found)
    return found


def _decoded(text: str, decoder: json.Decoder[T]) -> T:
    if len(text) > TEXT_CHARS_MAX:
        raise ValueError(f"a registration has at most {TEXT_CHARS_MAX} characters as JSON, and this one {len(text)}")
    try:
        return decoder.decode(text)
    except DecodeError as error:
        raise ValueError(f"the registration cannot be read: {error}") from None


def _check_program(found: McpRegistration | AgentRegistration) -> None:
    if any("\0" in word for word in (found.command, *found.args, *found.env, *found.env.values())):
        raise ValueError("no argument and no variable holds a NUL")
    if not 0 < found.start_s <= 600:
        raise ValueError("a server may take more than 0 and at most 600 seconds to start")


def _check_url(found: McpRegistration) -> None:
    parts = urlsplit(found.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise ValueError("a URL is http:// or https:// with a host, and no password in it")
    if found.env or found.args:
        raise ValueError("a server with a URL has no arguments and no variables")
    for name, value in found.headers.items():
        if not _HEADER.fullmatch(name) or not value.isascii() or not value.isprintable():
            raise ValueError(f"{name[:64]!r} cannot be sent as a header: take printable ASCII")


def check_host(server: McpServer, url: str, allowed: tuple[str, ...]) -> None:
    """Raises ValueError with a sentence if a project may have no server there."""
    host = urlsplit(url).hostname or ""
    if not server.is_shared and not any(fnmatchcase(host, pattern) for pattern in allowed):
        raise ValueError(
            f"the operator does not let projects have MCP servers at {host}: TURNWRIGHT_MCP_HOSTS names the hosts, "
            "or an operator registers it for all with `turnwright mcp add --deployment`"
        )


class McpSecrets(Struct, frozen=True):
    """The secrets in private files of the home: `mcp-secrets/_shared/NAME`, and those of one project."""

    home: Path

    def folder(self, server: McpServer) -> Path:
        of = _SHARED if server.is_shared else f"project-{quote(server.project, safe='')}"
        return self.home / _SECRETS / of

    def resolved(self, server: McpServer, values: Mapping[str, str]) -> dict[str, str]:
        """Values with secrets in the place of their names. Raises ValueError with a sentence."""
        return {name: _REFERENCE.sub(lambda one: self._read(server, one[1]), text) for name, text in values.items()}

    def named(self, server: McpServer, values: Mapping[str, str]) -> frozenset[str]:
        """The secrets that values name. Raises ValueError with a sentence."""
        names = {name for text in values.values() for name in _REFERENCE.findall(text)}
        return frozenset(filter(None, (self._read(server, name) for name in names)))

    def _read(self, server: McpServer, name: str) -> str:
        path = self.folder(server) / name
        try:
            return read_private(path).decode().strip()
        except (OSError, ValueError) as error:
            why = (error.strerror if isinstance(error, OSError) else "") or error
            raise ValueError(f"the secret {name} of {server.name} cannot be read at {path}: {why}") from None

"""Servers of tools as they are registered: by the operator in a file, or by a project's owner in the store.

Which hosts a project's owner may name is the operator's to say: a server is called from inside the operator's network.
Source: architecture 10; docs/adr/0081.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Any, Final

from msgspec import Struct

from turnwright_executor.domain.networks import Network, is_public, networks_of
from turnwright_executor.domain.tool_spec import SERVER_NAME

TIMEOUT_S: Final = 60.0
TIMEOUT_S_MAX: Final = 3600.0
SERVERS_MAX: Final = 64
"""Servers of the deployment, and of one project."""

TLS_WORDS: Final = ("auto", "none", "deployment", "public")
_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]{1,253}):(?P<port>\d{1,5})")
_HEADER: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_KEPT_HEADERS: Final = ("grpc-", "host", "te", "content-", "connection", "turnwright-")
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KNOWN: Final = frozenset(
    {
        "name",
        "address",
        "tls",
        "headers",
        "secret_headers",
        "tools",
        "timeout_s",
        "projects",
        "mcp",
        "acp",
        "workspaces",
    }
)

MCP: Final = "mcp"
"""The address of a server that speaks MCP, and the header with its registration."""
ACP: Final = "acp"
"""The same of an agent of another vendor, which speaks the Agent Client Protocol."""


class Away(Exception):  # noqa: N818 - a state, in a word
    """A server cannot be called; the text says why, and what to do."""


class RegisteredServer(Struct, frozen=True):
    """A server of tools."""

    name: str
    address: str
    """`host:port`; `unix:/path` where the operator says so; `mcp`, `acp`: what the header of this name registers."""
    tls: str = "auto"
    """`deployment`: as services call each other; `public`: with the system's authorities; `none`: plaintext.

    `auto`: none within this host, else as services do if they have TLS, else public.
    """
    headers: tuple[tuple[str, str], ...] = ()
    """Sent with each call, in lower case."""
    secret_headers: tuple[tuple[str, str], ...] = ()
    """Headers whose values are secrets of the operator's file, by their names there."""
    tools: tuple[str, ...] = ()
    """The only tools that are taken, by the server's names; empty: all."""
    timeout_s: float = TIMEOUT_S
    """Time limit of a call."""
    project: str = ""
    """Whose it is; empty: the deployment's."""
    workspaces: bool = False
    """Whether it is a sandbox host: projects are on it, and it has no tools for models."""
    projects: tuple[str, ...] = ()
    """Projects that have it, of the deployment's; empty: all."""

    @property
    def is_mcp(self) -> bool:
        return self.address == MCP

    @property
    def is_bridged(self) -> bool:
        """Whether a process of ours calls it, because it does not serve ToolService."""
        return self.address in (MCP, ACP)

    @property
    def model(self) -> str:
        """Alias of the model that its calls may ask, at the cost of the run; empty: none. Only where it speaks MCP."""
        return self._registered_text("sampling")

    @property
    def has_logins(self) -> bool:
        """Whether somebody may have logged in there."""
        return bool(self._registered_text("url"))

    def _registered_text(self, field: str) -> str:
        """A text in the registration of a server that speaks MCP."""
        try:
            found = json.loads(dict(self.headers).get(MCP, "{}")) if self.is_mcp else {}
        except ValueError:
            return ""
        text = found.get(field, "") if isinstance(found, dict) else ""
        return text if isinstance(text, str) else ""

    @property
    def registration(self) -> str:
        """What a call was accepted for: whose server it is, and where. Not its headers, whose secrets are replaced."""
        place = (self.project, self.address, dict(self.headers).get(self.address, "") if self.is_bridged else "")
        return hashlib.sha256("\0".join(place).encode()).hexdigest()[:32]

    @property
    def host(self) -> str:
        found = _ADDRESS.fullmatch(self.address)
        return found["host"].strip("[]") if found else ""


class Secret(Struct, frozen=True):
    """A secret that headers may have: from a variable or a file of the executor."""

    env: str = ""
    file: str = ""
    projects: tuple[str, ...] = ()
    """Projects whose own servers may be sent it. The deployment's servers may always."""


class ServersFile(Struct, frozen=True):
    """What the operator's file says."""

    servers: tuple[RegisteredServer, ...] = ()
    secrets: Mapping[str, Secret] = {}


def check_server(server: RegisteredServer) -> RegisteredServer:
    """The server as it is kept. Raises ValueError with a sentence."""
    if not SERVER_NAME.fullmatch(server.name):
        raise ValueError(
            f"{server.name[:64]!r} cannot be a name: take 1 to 24 lower-case letters, digits, and single `_` between"
        )
    is_socket = server.address.startswith("unix:")
    found = _ADDRESS.fullmatch(server.address)
    if is_socket and server.project:
        raise ValueError("a socket of this host is the operator's to name: give host:port")
    if server.address == ACP and server.project:
        raise ValueError("an agent of another vendor is the operator's to name, in the file of the executor")
    if not is_socket and not server.is_bridged and not (found and 0 < int(found["port"]) < 65536):
        raise ValueError(f"{server.address[:80]!r} is not an address: give host:port, such as tools.example.com:443")
    if server.tls not in TLS_WORDS:
        raise ValueError(f"tls is one of {', '.join(TLS_WORDS)}, not {server.tls!r}")
    if not 0 < server.timeout_s <= TIMEOUT_S_MAX:
        raise ValueError(f"a call takes more than 0 and at most {TIMEOUT_S_MAX:g} seconds")
    if server.workspaces and server.is_mcp:
        raise ValueError("a server that speaks MCP cannot be a sandbox host: leave out workspaces")
    _check_headers(server)
    return server


def _check_headers(server: RegisteredServer) -> None:
    if len(server.headers) + len(server.secret_headers) > 32 or len(server.tools) > 1000:
        raise ValueError("a server has at most 32 headers and 1000 allowed tools")
    for name, value in (*server.headers, *server.secret_headers):
        if not _HEADER.fullmatch(name) or name.startswith(_KEPT_HEADERS) or name.endswith("-bin"):
            raise ValueError(
                f"{name[:64]!r} can be no header: take lower-case letters, digits, `-`, none of gRPC's own"
            )
        if not value.isascii() or not value.isprintable() or len(value) > 4096:
            raise ValueError(f"the header {name} needs a value of at most 4096 printable ASCII characters")
    if unfit := [name for _, name in server.secret_headers if not _SECRET.fullmatch(name)]:
        raise ValueError(f"{unfit[0][:64]!r} cannot be the name of a secret")


def servers_in(text: str) -> ServersFile:
    """The operator's file. Raises ValueError with a sentence."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it is not TOML: {error}") from None
    if more := found.keys() - {"server", "secret"}:
        raise ValueError(f"it has tables [[server]] and [secret.NAME], and no {min(more)!r}")
    servers = tuple(_server_in(one) for one in _tables(found.get("server", []), "server"))
    names = [one.name for one in servers]
    if len(set(names)) < len(names) or len(names) > SERVERS_MAX:
        raise ValueError(f"there are at most {SERVERS_MAX} servers, each with a name of its own")
    secrets = found.get("secret", {})
    if not isinstance(secrets, dict):
        raise ValueError("secrets are tables [secret.NAME]")  # noqa: TRY004 - a text is what was given
    return ServersFile(servers, {name: _secret_in(name, one) for name, one in secrets.items()})


def _tables(value: object, name: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError(f"each server is a table [[{name}]]")
    return value


def _server_in(table: dict[str, Any]) -> RegisteredServer:
    if more := table.keys() - _KNOWN:
        raise ValueError(f"a server has {', '.join(sorted(_KNOWN))}, and no {min(more)!r}")
    bridged = [name for name in (MCP, ACP) if name in table]
    try:
        return check_server(
            RegisteredServer(
                str(table.get("name", "")),
                str((*bridged, table.get("address", ""))[0]),
                str(table.get("tls", "auto")),
                (*_headers_in(table), *((name, json.dumps(table[name])) for name in bridged[:1])),
                tuple((str(name).lower(), str(value)) for name, value in table.get("secret_headers", {}).items()),
                tuple(map(str, table.get("tools", ()))),
                float(table.get("timeout_s", TIMEOUT_S)),
                workspaces=table.get("workspaces", False) is True,
                projects=tuple(map(str, table.get("projects", ()))),
            )
        )
    except (AttributeError, TypeError) as error:
        raise ValueError(f"the server {table.get('name')!r} has a value of another type: {error}") from None


def _headers_in(table: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((str(name).lower(), str(value)) for name, value in table.get("headers", {}).items())


def _secret_in(name: str, table: object) -> Secret:
    if not isinstance(table, dict) or not _SECRET.fullmatch(name) or table.keys() - {"env", "file", "projects"}:
        raise ValueError(f"[secret.{name}] has env or file, and projects")
    secret = Secret(str(table.get("env", "")), str(table.get("file", "")), tuple(map(str, table.get("projects", ()))))
    if bool(secret.env) == bool(secret.file):
        raise ValueError(f"[secret.{name}] has either env or file")
    return secret


class AllowedHosts(Struct, frozen=True):
    """Where projects' own servers may be. Empty: nowhere."""

    names: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()
    public: bool = False
    """All public addresses."""

    def has_name(self, host: str) -> bool:
        return any(fnmatchcase(host.lower(), pattern) for pattern in self.names)

    def has_address(self, address: str) -> bool:
        found = ip_address(address.partition("%")[0])
        return (self.public and is_public(found)) or any(found in network for network in self.networks)

    @property
    def is_empty(self) -> bool:
        return not (self.names or self.networks or self.public)


def allowed_hosts(text: str) -> AllowedHosts:
    """The hosts of a setting: names, `*.example.com`, networks, or `public`. Raises ValueError with a sentence."""
    names, networks = [], []
    parts = [part.strip().lower() for part in text.split(",") if part.strip()]
    for part in parts:
        if re.fullmatch(r"[0-9a-f.:]+(/\d+)?", part):
            networks.append(part)
        elif re.fullmatch(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*", part):
            names.append(part)
        else:
            raise ValueError(f"{part!r} is neither a host, `*.` with a domain, a network, nor `public`")
    public = "public" in names
    return AllowedHosts(tuple(one for one in names if one != "public"), networks_of(",".join(networks)), public)


def unreachable(server: RegisteredServer, addresses: Collection[str], allowed: AllowedHosts) -> str:
    """Why a project's server may not be called at these addresses; empty if it may."""
    if not server.project or allowed.has_name(server.host):
        return ""
    if addresses and all(map(allowed.has_address, addresses)):
        return ""
    return (
        f"The operator does not let projects have servers at {server.host}: TURNWRIGHT_TOOL_HOSTS of the executor "
        "names the hosts and networks that they may be at, or an operator registers it for all, with --deployment."
    )

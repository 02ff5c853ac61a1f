"""`turnwright mcp`: MCP servers as tools, and with `serve` the agent as an MCP server."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from turnwright.catalogues.v1 import catalogue_service_pb2 as pb
from turnwright.executor.v1 import tools_pb2 as tools_pb

from turnwright_cli.exit_codes import FAILED, FailureError, usage
from turnwright_cli.interrupts import Interrupts
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import Column, answer, enum_word, show_list
from turnwright_cli.plain import safe_line
from turnwright_cli.session import open_project, open_scope, open_session
from turnwright_cli.tools import CHECK_S, MCP_ADDRESS, register, show_checked
from turnwright_client import Client
from turnwright_core.errors import Reason, fault
from turnwright_core.suggestions import unknown_model, unknown_vendor

PROJECT_FILE: Final = ".mcp.json"
FILE_BYTES_MAX: Final = 256 * 1024
HTTP_PORT: Final = 7447
_SECRET: Final = re.compile(r"\$\{(\w+)\}")
_OF_SECRETS: Final = re.compile(r"(token|secret|password|key|authorization|cookie)s?$", re.IGNORECASE)
"""Names of variables and headers whose values are secrets."""
_STDIO: Final = ("command", "args", "env")
_HTTP: Final = ("url", "headers")


async def list_servers(call: Invocation, *, deployment: bool) -> int:
    async with open_scope(call, deployment=deployment) as (client, project):
        found = await client.list_tool_servers(project)
        servers = [one for one in found if one.address == MCP_ADDRESS]
        # Without a project none is asked: each project has its own session with it.
        listed = (await client.list_tools(project, timeout_s=CHECK_S)).servers if project else ()
    states = {one.name: one for one in listed if one.address == MCP_ADDRESS}
    if not call.as_json:
        # How those are started is for operators to read.
        shared = [one.name for one in states.values() if one.shared]
        servers += [pb.ToolServer(name=name, set_by="the deployment") for name in shared]
    words = {name: enum_word(tools_pb.ToolServerCondition.DESCRIPTOR, one.condition) for name, one in states.items()}
    columns = (*_COLUMNS, Column("state", lambda one: words.get(one.name, "").replace("_", " ")))
    hint = "`turnwright mcp check` says why." if {*words.values()} - {"ready"} else ""
    return show_list(call, servers, columns, empty="No MCP servers. Register one with `turnwright mcp add`.", hint=hint)


async def add_server(
    call: Invocation,
    *,
    name: str,
    command: Sequence[str],
    url: str,
    env: Collection[tuple[str, str]],
    header: Collection[tuple[str, str]],
    effect: Collection[tuple[str, str]],
    sampling: str,
    only: Collection[str],
    seconds: float | None,
    deployment: bool,
) -> int:
    if bool(command) == bool(url):
        raise usage("A server has either a command, behind --, or a URL: turnwright mcp add NAME -- npx -y PACKAGE.")
    program, *arguments = command or ("",)
    registration = {
        "command": program, "args": arguments, "env": dict(env), "url": url, "headers": dict(header),
        "effects": dict(effect), "sampling": sampling,
    }  # fmt: skip
    server = _server(name, registration)
    server.tools.extend(only)
    return await register(call, server, seconds, deployment=deployment)


async def import_servers(call: Invocation, *, file: Path | None) -> int:
    path = file or Path(call.root) / PROJECT_FILE
    servers = [_server(name, one) for name, one in read_servers(path).items()]
    async with open_project(call) as (client, project):
        made = [await client.add_tool_server(project, one) for one in servers]
        if not call.as_json:
            # Nobody has to have read the file to see what is started now, and which secrets it gets.
            show_list(call, made, _COLUMNS)
            return show_checked(await client.list_tools(project, check=True, timeout_s=CHECK_S))
    return answer(call, made, "registered")


def read_servers(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """The registrations in a file `.mcp.json`, as other programs have it. Raises FailureError."""
    try:
        with path.open("rb") as opened:
            found = json.loads(opened.read(FILE_BYTES_MAX + 1))["mcpServers"]
        return {str(name).lower().replace("-", "_"): _registration(name, one) for name, one in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise usage(f"{path} cannot be read as a list of MCP servers (mcpServers): {error}") from None


def _registration(name: str, one: Mapping[str, Any]) -> Mapping[str, Any]:
    """Raises ValueError for what is not known: to leave it out could change what the server may do."""
    kind = one.get("type", "http" if "url" in one else "stdio")
    known = {"stdio": _STDIO, "http": _HTTP, "streamable-http": _HTTP}.get(str(kind))
    if known is None:
        raise ValueError(f"{name} is reached by {kind!r}, and only stdio and http are known")
    if more := one.keys() - {*known, "type"}:
        raise ValueError(f"{name} has {min(more)!r}, which is not known")
    return {key: one[key] for key in known if key in one}


def _server(name: str, registration: Mapping[str, Any]) -> pb.ToolServer:
    """Raises FailureError for a secret as text: whoever reads the project reads its registrations."""
    values = [
        pair for key in ("env", "headers") if isinstance(of := registration.get(key), dict) for pair in of.items()
    ]
    if unsafe := [one for one, value in values if _OF_SECRETS.search(one) and not _SECRET.search(str(value))]:
        raise usage(
            f"{safe_line(unsafe[0])} of {safe_line(name)} would be read by everybody who reads the project: write it"
            " to a private file, and register ${NAME} in its place. docs/mcp.md says where, under Secrets."
        )
    given = {key: value for key, value in registration.items() if value}
    return pb.ToolServer(name=name, address=MCP_ADDRESS, headers={MCP_ADDRESS: json.dumps(given)})


def _place(server: pb.ToolServer) -> str:
    try:
        found = json.loads(server.headers[MCP_ADDRESS])
        place = str(found.get("url") or " ".join([found["command"], *found.get("args", ())]))
        secrets = {name for key in ("env", "headers") for name in _SECRET.findall(json.dumps(found.get(key, {})))}
        return f"{place} (gets {', '.join(sorted(secrets))})" if secrets else place
    except (KeyError, TypeError, ValueError, AttributeError):
        return ""


_COLUMNS: Final[Sequence[Column[pb.ToolServer]]] = (
    Column("name", lambda one: one.name),
    Column("started by", _place),
    Column("set by", lambda one: one.set_by),
)


async def serve(
    call: Invocation, *, model: str | None, http: bool, host: str | None, port: int | None, allow_host: Collection[str]
) -> int:
    if not http and (host or port is not None or allow_host):
        raise usage("--host, --port and --allow-host are of --http.")
    try:
        from turnwright_mcp.agent import AgentTools, serve_agent
    except ModuleNotFoundError as error:
        raise FailureError(FAILED, f"{error}. Install the extra: pip install 'turnwright[mcp]'.") from None

    @asynccontextmanager
    async def connect() -> AsyncGenerator[AgentTools, None]:
        async with open_session(call.settings, stays=False) as session:
            project = await session.client.init_project(call.root)
            model_of_runs = model or call.defaults.model or ""
            await _check_model(session.client, model_of_runs)
            yield AgentTools(session.client, project.name, model_of_runs)

    if not http:
        await serve_agent(connect)
        return 0
    from turnwright_mcp.agent_http import AgentPort, open_agent

    at = AgentPort(host or "127.0.0.1", HTTP_PORT if port is None else port, allow_host)
    with Interrupts().entered() as interrupts:
        async with connect() as tools:
            try:
                async with open_agent(tools, at, call.settings.tls) as url:
                    print(f"the agent is served at {url}", file=sys.stderr, flush=True)
                    await interrupts.asked.wait()
            except OSError as error:
                why = os.strerror(error.errno) if error.errno else str(error)
                text = f"Nothing can listen at port {at.port} of {at.host}: {why}. Name another one with --port."
                raise FailureError(FAILED, text) from None
    return 0


async def _check_model(client: Client, model: str) -> None:
    """Refuse a model that no run can have, before anybody gives a task. Raises FailureError, MODEL_NOT_FOUND."""
    vendor, slash, _ = model.partition("/")
    if slash:
        vendors = [one.name for one in (await client.get_status()).vendors]
        if vendor not in vendors:
            raise usage(unknown_vendor(safe_line(vendor), vendors))
    elif model:
        known = [one.alias for one in await client.list_models()]
        if model not in known:
            raise fault(Reason.MODEL_NOT_FOUND, unknown_model(model, known), model=model)

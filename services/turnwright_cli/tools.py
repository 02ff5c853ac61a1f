"""`tools`: which tools the next task gets, where they come from and what they cost; servers of tools."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from rich.text import Text
from turnwright.catalogues.v1 import catalogue_service_pb2 as catalogue_pb
from turnwright.executor.v1 import tools_pb2 as pb
from turnwright.types.v1 import command_record_pb2

from turnwright_cli.exit_codes import FAILED, usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import Column, answer, console, enum_word, put, show_lines, show_list, write_line
from turnwright_cli.plain import safe_line
from turnwright_cli.session import open_project, open_scope

MCP_ADDRESS: Final = "mcp"
"""The address of an MCP server among the servers of tools, and the header with its registration."""
CHECK_S: Final = 60.0
"""Seconds that all servers together may take to answer."""


async def list_tools(call: Invocation) -> int:
    async with open_project(call) as (client, project):
        found = await client.list_tools(project)
    wrong = [str(line) for line in server_lines([one for one in found.servers if not is_ready(one)])]
    brought = [one for one in found.tools if one.source == pb.TOOL_SOURCE_SERVER and one.offered]
    if brought:
        tokens = sum(one.tokens for one in brought)
        wrong.append(
            f"What servers bring takes {tokens:,} tokens. Where that is more than a tenth of a model's window, it gets "
            "the names, and finds the rest with search_tools."
        )
    return show_list(call, found.tools, _TOOLS, empty="No tools.", hint="\n".join(wrong))


async def add_server(
    call: Invocation,
    *,
    name: str,
    address: str,
    tls: str,
    headers: Collection[tuple[str, str]],
    secret_headers: Collection[tuple[str, str]],
    only: Collection[str],
    seconds: float | None,
    deployment: bool,
) -> int:
    server = catalogue_pb.ToolServer(
        name=name,
        address=address,
        tls=catalogue_pb.ToolServerTls.Value(f"TOOL_SERVER_TLS_{'UNSPECIFIED' if tls == 'auto' else tls.upper()}"),
        headers={key.lower(): value for key, value in headers},
        secret_headers={key.lower(): value for key, value in secret_headers},
        tools=only,
    )
    return await register(call, server, seconds, deployment=deployment)


async def register(
    call: Invocation, server: catalogue_pb.ToolServer, seconds: float | None, *, deployment: bool
) -> int:
    if seconds is not None:
        server.timeout.FromMilliseconds(round(seconds * 1000))
    async with open_scope(call, deployment=deployment) as (client, project):
        made = await client.add_tool_server(project, server)
        name = safe_line(server.name)
        if project and not call.as_json:
            code = show_checked(await client.list_tools(project, check=True, server=server.name, timeout_s=CHECK_S))
            if code:
                write_line(
                    f"It is registered all the same: once that is mended, `turnwright tools check {name}` asks again; "
                    f"`turnwright tools remove {name}` takes it back."
                )
            return code
    return answer(
        call, [made], f"{name}: registered. In a project `turnwright tools check {name}` asks what it brings."
    )


async def remove_server(call: Invocation, *, name: str, deployment: bool) -> int:
    async with open_scope(call, deployment=deployment) as (client, project):
        await client.remove_tool_server(project, name)
        left = await client.list_tool_servers(project) if call.as_json else ()
    return answer(call, left, f"{safe_line(name)}: removed")


async def check_servers(call: Invocation, *, name: str) -> int:
    async with open_project(call) as (client, project):
        found = await client.list_tools(project, check=True, server=name, timeout_s=CHECK_S)
    if call.as_json:
        show_lines([found])
        return 0 if all(map(is_ready, found.servers)) else FAILED
    if name and not found.servers:
        raise usage(
            f"There is no server of tools {name!r} for this project: `turnwright tools check` asks all there are."
        )
    return show_checked(found)


def show_checked(found: pb.ListToolsResponse) -> int:
    if not found.servers:
        write_line("No servers of tools. Register one with `turnwright tools add` or `turnwright mcp add`.")
        return 0
    out = console()
    for line in server_lines(found.servers):
        put(out, line)
    return 0 if all(map(is_ready, found.servers)) else FAILED


def is_ready(server: pb.ToolServerState) -> bool:
    return server.condition == pb.TOOL_SERVER_CONDITION_READY


def server_lines(servers: Sequence[pb.ToolServerState]) -> Sequence[Text]:
    """What a person reads of servers, and of their tools with which something is wrong."""
    lines = []
    for server in servers:
        whose = "of the deployment" if server.shared else "of this project"
        refused = f", {server.refused_tools} refused" if server.refused_tools else ""
        place = "by MCP" if server.address == MCP_ADDRESS else f"at {server.address}"
        number = server.tools - server.refused_tools
        tools = f"{number} tool{'' if number == 1 else 's'}{refused}, {whose}, {place}"
        words = tools if is_ready(server) else server.problem
        style = "green" if is_ready(server) and not server.problems else "yellow"
        lines.append(Text.assemble("  ", (safe_line(server.name), "bold"), ": ", (safe_line(words), style)))
        lines += [Text(f"    {safe_line(problem)}") for problem in server.problems]
    return lines


def _source(tool: pb.ListedTool) -> str:
    word = enum_word(pb.ToolSource.DESCRIPTOR, tool.source)
    return f"{word} {tool.origin}" if tool.origin else word


_TOOLS: Final[Sequence[Column[pb.ListedTool]]] = (
    Column("name", lambda one: one.name),
    Column("source", _source),
    Column("state", lambda one: "offered" if one.offered else "refused"),
    Column("effect", lambda one: enum_word(command_record_pb2.EffectClass.DESCRIPTOR, one.effect_class)),
    Column("asks", lambda one: "yes" if one.asks else ""),
    Column("tokens", lambda one: str(one.tokens)),
    Column("note", lambda one: one.problem),
)

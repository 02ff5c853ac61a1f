"""Servers of tools for tests: real ones, on ports of their own, and stacks whose operator has registered them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from services import running
from turnwright_client.tool_server import ToolServer

ISSUE = {
    "type": "object",
    "properties": {"title": {"type": "string", "description": "What it is about."}, "count": {"type": "integer"}},
    "required": ["title"],
    "additionalProperties": False,
}


class Issues(ToolServer):
    """A server that counts what it was asked to do."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

        @self.tool("Create-Issue", "Opens an issue.\n\nIt is numbered.", schema=ISSUE, destructive=True)
        async def create(call):
            self.calls.append(call)
            return f"opened {call.arguments['title']}"

        @self.tool("look", "Looks at an issue.", schema=ISSUE, effect_class="pure", open_world=False)
        async def look(call):
            self.calls.append(call)
            await call.progress("looking\n")
            await call.progress("found\n")
            return f"saw {json.dumps(call.arguments, sort_keys=True)}"


@asynccontextmanager
async def served(server: ToolServer, address: str = "127.0.0.1:0"):
    """The server on a port; its address."""
    running_server = await server.serve(address)
    try:
        yield f"127.0.0.1:{server.port}" if address.endswith(":0") else address
    finally:
        await running_server.stop(0)


class Breaking:
    """A server behind a connection that can be broken, as a death of the server breaks it, and made again."""

    def __init__(self, server: ToolServer) -> None:
        self._server = server
        self._writers: list[asyncio.StreamWriter] = []

    @asynccontextmanager
    async def served(self):
        async with served(self._server) as behind:
            host, _, port = behind.rpartition(":")

            async def passes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
                self._writers += [writer, inner_writer]
                await asyncio.gather(_copied(reader, inner_writer), _copied(inner_reader, writer))

            listening = await asyncio.start_server(passes, "127.0.0.1", 0)
            async with listening:
                yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
                self.break_now()

    def break_now(self) -> None:
        """Break every connection."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        writer.transport.abort()
    else:
        writer.close()


def file_of(path: Path, servers: Mapping[str, Any], more: str = "") -> str:
    """The operator's file: the address of each server, or a table."""
    tables = []
    for name, one in servers.items():
        given = {"address": one} if isinstance(one, str) else one
        lines = [f"{key} = {json.dumps(value)}" for key, value in given.items() if not isinstance(value, dict)]
        lines += [f"{key} = {_inline(value)}" for key, value in given.items() if isinstance(value, dict)]
        tables.append("\n".join(["[[server]]", f'name = "{name}"', *lines, ""]))
    path.write_text("\n".join(tables) + more)
    return str(path)


def _inline(table: Mapping[str, Any]) -> str:
    pairs = (
        f'"{key}" = {_inline(value) if isinstance(value, dict) else json.dumps(value)}' for key, value in table.items()
    )
    return "{" + ", ".join(pairs) + "}"


@asynccontextmanager
async def stack(root: Path, monkeypatch, servers: Mapping[str, Any], more: str = "", **settings: Any):
    """A stack whose operator has registered these servers."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_TOOL_SERVERS", file_of(root / "servers.toml", servers, more))
    async with running(root, **settings) as made:
        yield made

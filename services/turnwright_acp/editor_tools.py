"""Tools that the editor executes: its open buffers, with what is not saved, and its terminals (AG10).

A loop that this editor has prompted offers them to the model as tools of a client; they run only here, and what changes
something asks first, unless nothing is asked in this session. Without the capability they are not offered, and the
model works with the runtime's own tools alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any, Final

import msgspec
from turnwright.types.v1 import proposal_pb2, settings_pb2

from turnwright_acp.jsonrpc import Connection, RpcError
from turnwright_acp.plans import path_in
from turnwright_acp.shapes import Capabilities

OUTPUT_BYTES_MAX: Final = 256 * 1024
"""Output of a terminal that the model reads at most, in bytes."""
RELEASE_S: Final = 5.0
"""Seconds that an editor may take to release a terminal."""
READ: Final = "editor_read"
WRITE: Final = "editor_write"
RUN: Final = "editor_run"
ASKED: Final = (WRITE, RUN)
"""Tools that change something."""

_PATH: Final = {"type": "string", "description": "Path relative to the project's root."}
_NUMBER: Final = {"type": "integer", "minimum": 1}


def offered_tools(can: Capabilities) -> list[settings_pb2.ToolDescription]:
    """The tools that this editor can execute."""
    tools = []
    if can.reads_files:
        fields = {"path": _PATH, "line": {**_NUMBER, "description": "First line, from 1."}, "limit": _NUMBER}
        about = "Reads a text file as the user has it open in the editor, with changes that are not saved."
        tools.append(_tool(READ, about, fields, "path"))
    if can.writes_files:
        fields = {"path": _PATH, "content": {"type": "string", "description": "The whole new text."}}
        about = "Replaces a text file in the editor, so that the user sees the change in an open buffer."
        tools.append(_tool(WRITE, about, fields, "path", "content"))
    if can.has_terminals:
        fields = {"command": {"type": "string", "description": "Command line for /bin/sh."}}
        tools.append(_tool(RUN, "Runs a command in a terminal that the user watches.", fields, "command"))
    return tools


def _tool(name: str, about: str, fields: dict[str, Any], *required: str) -> settings_pb2.ToolDescription:
    schema = {"type": "object", "properties": fields, "required": list(required), "additionalProperties": False}
    return settings_pb2.ToolDescription(name=name, description=about, parameters=msgspec.json.encode(schema).decode())


class EditorTools:
    """Executes calls of one session in its editor."""

    def __init__(self, connection: Connection, session_id: str, root: Path) -> None:
        self._connection, self._session_id, self._root = connection, session_id, root

    async def run(self, proposal: proposal_pb2.Proposal) -> str:
        """The result of a call, for the model. Raises RpcError with what the model is to read of a failure."""
        given = _arguments(proposal.client_tool.arguments_json)
        match proposal.tool:
            case "editor_read":
                return await self._read(given)
            case "editor_write":
                return await self._write(given)
            case "editor_run":
                return await self._run(proposal.path, str(given.get("command") or ""))
            case _:
                raise RpcError(0, f"This editor has no tool {proposal.tool}.")

    async def _read(self, given: dict[str, Any]) -> str:
        window = {name: given[name] for name in ("line", "limit") if isinstance(given.get(name), int)}
        read = await self._ask("fs/read_text_file", {"path": self._path(given), **window})
        return str(read.get("content") or "")

    async def _write(self, given: dict[str, Any]) -> str:
        path = self._path(given)
        await self._ask("fs/write_text_file", {"path": path, "content": str(given.get("content") or "")})
        return f"wrote {given['path']} in the editor"

    async def _run(self, call: str, command: str) -> str:
        wanted = {"command": "/bin/sh", "args": ["-c", command], "cwd": str(self._root)}
        opened = await self._ask("terminal/create", {**wanted, "outputByteLimit": OUTPUT_BYTES_MAX})
        terminal = {"terminalId": opened.get("terminalId")}
        if not isinstance(terminal["terminalId"], str):
            raise RpcError(0, "The editor has opened no terminal.")
        shown = {"type": "terminal", **terminal}
        update = {"sessionUpdate": "tool_call_update", "toolCallId": call, "status": "in_progress", "content": [shown]}
        self._connection.notify("session/update", {"sessionId": self._session_id, "update": update})
        try:
            ended = await self._ask("terminal/wait_for_exit", terminal)
            output = await self._ask("terminal/output", terminal)
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RELEASE_S):
                    await self._ask("terminal/release", terminal)
        code = ended.get("exitCode")
        words = f"exit={code}" if code is not None else f"stopped by {ended.get('signal') or 'a signal'}"
        return f"{words}\n{output.get('output') or ''}"

    async def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        answer = await self._connection.request(method, {"sessionId": self._session_id, **params})
        return answer if isinstance(answer, dict) else {}

    def _path(self, given: dict[str, Any]) -> str:
        path = path_in(self._root, str(given.get("path") or ""))
        # A link in the project may lead elsewhere.
        if path is None or not path.resolve().is_relative_to(self._root.resolve()):
            raise RpcError(0, "`path` must be relative to the project's root, and below it.")
        return str(path)


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}

"""An agent of another vendor that does one task: the client's side of the Agent Client Protocol, on standard streams.

A process of its own for each call, which is prompted once and ends with the call. It is offered neither files nor
terminals of ours: what it reads and writes, it does itself, and the sandbox confines it. Source: docs/adr/0087.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from functools import partial
from typing import Any, Final

from acp.connection import Connection
from acp.exceptions import RequestError
from acp.meta import AGENT_METHODS, CLIENT_METHODS, PROTOCOL_VERSION
from acp.schema import NewSessionResponse, PromptResponse, RequestPermissionRequest
from pydantic import ValidationError

from turnwright_core import __version__
from turnwright_mcp.agent_updates import read_update
from turnwright_mcp.agent_words import AgentReport, option_for, permission_text
from turnwright_mcp.connection import ServerAwayError, words_of
from turnwright_mcp.connections import Connections
from turnwright_mcp.held import CallLostError, HeldCall
from turnwright_mcp.incoming import REQUEST_CHARS_MAX
from turnwright_mcp.registration import McpServer
from turnwright_mcp.results import BAD_GATEWAY, failure
from turnwright_mcp.transports import UNREADABLE_MAX, Complaint, Pace, line_of

UNANSWERED_MAX: Final = 64
"""Requests of an agent without an answer, after which nothing more is read of it."""
CANCEL_S: Final = 1.0
"""Seconds that a cancelled agent has to end what it does."""

_CANCELLED: Final = {"outcome": {"outcome": "cancelled"}}


class AgentCall(HeldCall):
    """One task of an agent."""

    def __init__(self, connections: Connections, server: McpServer, arguments: str) -> None:
        """`arguments` is a JSON object with the prompt."""
        super().__init__()
        self._connections, self._server = connections, server
        self._prompt = str(json.loads(arguments or "{}").get("prompt", ""))
        self._report = AgentReport(server.name, self.progressed)
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._session = ""

    async def begin(self) -> None:
        """Start it. Raises ServerAwayError: then it was not prompted."""
        self.start(self._work(), f"agent {self._server.name}")
        try:
            await self._ready
        except asyncio.CancelledError:
            await self.stop()
            raise

    def ended(self) -> None:
        super().ended()
        if not self._ready.done():
            self._ready.set_exception(ServerAwayError(f"The agent {self._server.name} was stopped while it started."))

    async def _work(self) -> None:
        """Never raises: whatever happens is an event, or the failure of the start."""
        complaint = Complaint()
        try:
            await self._worked(complaint)
        except Exception as error:  # noqa: BLE001 - another's program, and what its answers do to the SDK
            why = complaint.words() or words_of(error)
            if self._ready.done():
                self.happened(CallLostError(f"The agent {self._server.name} has left during its task: {why}."))
            else:
                self._ready.set_exception(ServerAwayError(f"The agent {self._server.name} does not start: {why}."))

    async def _worked(self, complaint: Complaint) -> None:
        async with self._connections.agent(self._server) as (registration, program):
            try:
                async with (
                    asyncio.timeout(registration.start_s) as starting,
                    program.opened(complaint) as streams,
                    Connection(self._answered, _Lines(*streams, complaint, program.pace)) as connection,
                ):
                    self._session = await _session(connection, str(program.root))
                    starting.reschedule(None)
                    self._ready.set_result(None)
                    await self._prompted(connection)
            except TimeoutError:
                complaint.reason = f"it did not start within {registration.start_s:g} s"
                raise

    async def _prompted(self, connection: Connection) -> None:
        prompt = [{"type": "text", "text": self._prompt}]
        given = {"sessionId": self._session, "prompt": prompt}
        try:
            answer = await connection.send_request(AGENT_METHODS["session_prompt"], given)
            # Its updates came before, and each has a task of its own.
            await asyncio.sleep(0)
            self.happened(self._report.result(PromptResponse.model_validate(answer)))
        except RequestError as error:
            self.happened(failure(BAD_GATEWAY, f"{self._server.name}: {words_of(error)}"))
        except asyncio.CancelledError:
            with suppress(Exception):
                async with asyncio.timeout(CANCEL_S):
                    await connection.send_notification(AGENT_METHODS["session_cancel"], {"sessionId": self._session})
            raise

    async def _answered(self, method: str, params: Any, is_notification: bool) -> Any:
        """Answer what the agent sends. Raises RequestError."""
        try:
            if method == CLIENT_METHODS["session_update"]:
                if isinstance(params, dict) and params.get("sessionId") == self._session:
                    self._report.update(read_update(params) or {})
                return None
            if method == CLIENT_METHODS["session_request_permission"] and not is_notification:
                return await self._permitted(RequestPermissionRequest.model_validate(params))
        except ValidationError:
            if not is_notification:
                raise RequestError.invalid_params() from None
            return None
        if is_notification:
            return None
        raise RequestError.method_not_found(str(method)[:100])

    async def _permitted(self, request: RequestPermissionRequest) -> Any:
        if not self._session or request.session_id != self._session:
            return _CANCELLED
        chosen = await self.ask(
            partial(permission_text, self._server.name, request), partial(option_for, request.options)
        )
        return {"outcome": {"outcome": "selected", "optionId": chosen}} if chosen else _CANCELLED


async def _session(connection: Connection, root: str) -> str:
    about = {
        "protocolVersion": PROTOCOL_VERSION,
        "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
        "clientInfo": {"name": "turnwright", "version": __version__},
    }
    await connection.send_request(AGENT_METHODS["initialize"], about)
    made = await connection.send_request(AGENT_METHODS["session_new"], {"cwd": root, "mcpServers": []})
    return NewSessionResponse.model_validate(made).session_id


class _Lines:
    """Messages as lines, within bounds; implements the SDK's Transport."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, complaint: Complaint, pace: Pace
    ) -> None:
        self._reader, self._writer, self._complaint, self._pace = reader, writer, complaint, pace
        self._unanswered = 0
        self._room = asyncio.Event()
        self._room.set()

    async def receive(self) -> dict[str, Any] | None:
        unreadable = 0
        while unreadable <= UNREADABLE_MAX:
            await self._room.wait()
            # What was read before is answered first, so that a flood does not pile up.
            await asyncio.sleep(0)
            line = await line_of(self._reader, self._complaint, self._pace)
            if not line:
                return None
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                message = None
            if isinstance(message, dict):
                self._count(message, 1)
                if len(line) <= REQUEST_CHARS_MAX or not {"id", "method"} <= message.keys():
                    return message
                # Nothing more is read before the agent has taken this.
                error = RequestError(-32600, f"A request has at most {REQUEST_CHARS_MAX} characters.").to_error_obj()
                await self.send({"jsonrpc": "2.0", "id": message["id"], "error": error})
                continue
            unreadable += 1
        self._complaint.reason = f"it wrote {unreadable} lines which are not messages of the protocol"
        return None

    async def send(self, message: dict[str, Any]) -> None:
        try:
            self._writer.write(json.dumps(message).encode() + b"\n")
            await self._writer.drain()
        finally:
            if "method" not in message:
                self._count({"method": "", **message}, -1)

    def _count(self, message: dict[str, Any], more: int) -> None:
        if "method" in message and "id" in message:
            self._unanswered += more
            (self._room.set if self._unanswered < UNANSWERED_MAX else self._room.clear)()

    async def close(self) -> None:
        self._writer.close()

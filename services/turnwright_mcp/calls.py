"""Calls in progress: what a server says while it works, what it asks people, and what becomes of it.

A question of a server of 2026 ends its call: what the server needs to go on is kept with the proposal, and outlives
everything. One of earlier versions waits within its call: it is held here while the proposal waits, for at most
HELD_S; if this process or the server ends before, nobody knows what has become of the call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, Final

import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError
from msgspec import Struct
from pydantic import TypeAdapter
from turnwright.tool.v1 import result_pb2

from turnwright_mcp.connection import McpConnection, Sample, words_of
from turnwright_mcp.questions import answer_of, question_text
from turnwright_mcp.results import FAILED, result_to_pb

HELD_S: Final = 3600.0
"""Seconds that a call of an earlier protocol waits for its answer."""
PROGRESS_MAX: Final = 256
"""Pieces of progress that wait to be sent; more are left out."""
HELD: Final = b"held"
"""The state of a proposal whose call is held here."""
BAD_GATEWAY: Final = 502

_STATUSES: Final = {types.INVALID_PARAMS: 400, types.METHOD_NOT_FOUND: 404, types.INVALID_REQUEST: 400}
_GONE: Final = frozenset({types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT})
_REQUESTS: Final[TypeAdapter[dict[str, types.InputRequest]]] = TypeAdapter(dict[str, types.InputRequest])


class CallLostError(Exception):
    """Nobody knows what has become of a call. The text says why."""


class Question(Struct, frozen=True):
    """What a call asks a person before it goes on."""

    text: str
    state: bytes


class Answered(Struct, frozen=True):
    """The question that a call is continued with, and the comment that answers it."""

    state: bytes
    comment: str


McpEvent = str | Question | result_pb2.ToolResult


class McpCall:
    """One call. Its owner iterates `events`, and ends it with `stop`."""

    def __init__(self, connection: McpConnection, client: Client, tool: str, arguments: str) -> None:
        """`arguments` is a JSON object."""
        self._connection, self._client, self._tool = connection, client, tool
        self._arguments: dict[str, Any] = json.loads(arguments or "{}")
        self._events: asyncio.Queue[McpEvent | Exception] = asyncio.Queue()
        self._left_out = 0
        self._working: asyncio.Task[None] | None = None
        self._asked: tuple[types.ElicitRequestParams, asyncio.Future[str]] | None = None
        self._expiring: asyncio.TimerHandle | None = None

    @property
    def is_held(self) -> bool:
        return self._asked is not None and self._working is not None and not self._working.done()

    def begin(self, sample: Sample, answered: Answered | None = None) -> None:
        """Raises AnswerError if a stored question does not get what it asks for."""
        given = {} if answered is None else self._given(answered)
        self._connection.busy += 1
        self._connection.elicit, self._connection.sample = self._elicit, sample
        self._working = asyncio.create_task(self._work(**given), name=f"mcp call {self._tool}")
        self._working.add_done_callback(self._ended)

    def answer(self, comment: str) -> None:
        """Go on with a held call. Raises AnswerError, and then it is still held."""
        assert self._asked is not None
        params, waiting = self._asked
        answer_of(params, comment)
        self._release()
        if not waiting.done():
            waiting.set_result(comment)

    def question(self, problem: str) -> Question:
        """The question of a held call once more."""
        assert self._asked is not None
        return Question(question_text(self._asked[0], problem), HELD)

    async def events(self) -> AsyncGenerator[McpEvent, None]:
        """What happens up to the next question or the result. Raises CallLostError, MCPError."""
        while True:
            event = await self._events.get()
            if isinstance(event, Exception):
                raise event
            if self._left_out and not isinstance(event, str):
                left_out, self._left_out = self._left_out, 0
                yield f"({left_out} pieces of progress are left out)\n"
            yield event
            if not isinstance(event, str):
                return

    async def stop(self) -> None:
        """End it; its server is told."""
        self._release()
        if self._working is not None:
            self._working.cancel()
            await asyncio.wait((self._working,))

    def _ended(self, _: object) -> None:
        self._release()
        self._connection.busy -= 1
        if not self._connection.busy:
            self._connection.elicit = self._connection.sample = None

    def _release(self) -> None:
        self._asked = None
        if self._expiring is not None:
            self._expiring.cancel()
            self._expiring = None

    async def _work(self, **given: Any) -> None:
        """Never raises: whatever happens is an event."""
        try:
            self._events.put_nowait(await self._called(**given))
        except MCPError as error:
            is_gone = error.error.code in _GONE
            self._events.put_nowait(CallLostError(self._gone(error)) if is_gone else _refused(error))
        except Exception as error:  # noqa: BLE001 - another's program, and what its answers do to the SDK
            self._events.put_nowait(CallLostError(self._gone(error)))

    def _gone(self, error: Exception) -> str:
        # It may be broken without having ended.
        self._connection.end()
        why = self._connection.complaint or words_of(error)
        return f"The MCP server {self._connection.server.name} has left during the call: {why}."

    async def _called(self, **given: Any) -> McpEvent:
        while True:
            try:
                result = await self._client.session.call_tool(
                    self._tool, self._arguments, progress_callback=self._progressed, allow_input_required=True, **given
                )
            except RuntimeError as error:
                # The SDK holds results against the tool's own schema.
                return _failure(BAD_GATEWAY, f"The result is not what the tool says it gives: {words_of(error)}")
            if isinstance(result, types.CallToolResult):
                return result_to_pb(result)
            requests = result.input_requests or {}
            if questions := [one for one in requests.values() if isinstance(one, types.ElicitRequest)]:
                state = {
                    "requests": _REQUESTS.dump_python(requests, mode="json", by_alias=True, exclude_none=True),
                    "state": result.request_state,
                }
                text = "\n\n".join(question_text(one.params) for one in questions)
                return Question(text, json.dumps(state).encode())
            # There is nothing that a person has to say.
            await asyncio.sleep(0.05)
            given = {"input_responses": await self._responses(requests), "request_state": result.request_state}

    def _given(self, answered: Answered) -> dict[str, Any]:
        state = json.loads(answered.state)
        requests = _REQUESTS.validate_python(state["requests"], by_name=False)
        answers = {
            key: answer_of(one.params, answered.comment)
            for key, one in requests.items()
            if isinstance(one, types.ElicitRequest)
        }
        roots = {
            key: self._connection.roots() for key, one in requests.items() if isinstance(one, types.ListRootsRequest)
        }
        return {"input_responses": {**answers, **roots}, "request_state": state["state"]}

    async def _responses(self, requests: dict[str, Any]) -> dict[str, Any] | None:
        found: dict[str, Any] = {}
        for key, one in requests.items():
            if isinstance(one, types.ListRootsRequest):
                found[key] = self._connection.roots()
            elif isinstance(one, types.CreateMessageRequest):
                found[key] = await self._sampled(one.params)
        return found or None

    async def _sampled(self, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        answer = await self._connection.sampled(params)
        if isinstance(answer, types.ErrorData):
            raise MCPError.from_error_data(answer)
        return answer

    async def _progressed(self, progress: float, total: float | None, message: str | None) -> None:
        if self._events.qsize() >= PROGRESS_MAX:
            self._left_out += 1
            return
        at = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        self._events.put_nowait(f"{at}: {message}\n" if message else f"{at}\n")

    async def _elicit(self, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[str] = loop.create_future()
        self._asked = params, waiting
        self._expiring = loop.call_later(HELD_S, waiting.cancel)
        self._events.put_nowait(Question(question_text(params), HELD))
        try:
            return answer_of(params, await waiting)
        except asyncio.CancelledError:
            if waiting.cancelled():
                return types.ElicitResult(action="cancel")
            raise


def _refused(error: MCPError) -> result_pb2.ToolResult:
    return _failure(_STATUSES.get(error.error.code, BAD_GATEWAY), error.error.message)


def _failure(status: int, text: str) -> result_pb2.ToolResult:
    part = result_pb2.ToolPart(text=text[:4096].encode(errors="replace").decode())
    return result_pb2.ToolResult(parts=[part], status=status or FAILED)

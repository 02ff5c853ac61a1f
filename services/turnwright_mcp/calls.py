"""Calls of MCP servers in progress: what one says while it works, what it asks, and what becomes of it.

A question of a server of 2026 ends its call: what the server needs to go on is kept with the proposal, and outlives
everything. One of earlier versions waits within its call: it is held here while the proposal waits, for at most
HELD_S; if this process or the server ends before, nobody knows what has become of the call.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any, Final

import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError
from msgspec import Struct
from pydantic import TypeAdapter
from turnwright.tool.v1 import result_pb2

from turnwright_mcp.connection import McpConnection, words_of
from turnwright_mcp.held import CallLostError, HeldCall, Question
from turnwright_mcp.questions import answer_of, question_text
from turnwright_mcp.results import BAD_GATEWAY, failure, result_to_pb
from turnwright_mcp.sampling import model_request, sampled

_STATUSES: Final = {types.INVALID_PARAMS: 400, types.METHOD_NOT_FOUND: 404, types.INVALID_REQUEST: 400}
_GONE: Final = frozenset({types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT})
_REQUESTS: Final[TypeAdapter[dict[str, types.InputRequest]]] = TypeAdapter(dict[str, types.InputRequest])


class Answered(Struct, frozen=True):
    """The question that a call is continued with, and the comment that answers it."""

    state: bytes
    comment: str


class McpCall(HeldCall):
    """One call."""

    def __init__(self, connection: McpConnection, client: Client, tool: str, arguments: str) -> None:
        """`arguments` is a JSON object."""
        super().__init__()
        self._connection, self._client, self._tool = connection, client, tool
        self._arguments: dict[str, Any] = json.loads(arguments or "{}")

    def begin(self, answered: Answered | None = None) -> None:
        """Raises AnswerError if a stored question does not get what it asks for."""
        given = {} if answered is None else self._given(answered)
        self._connection.calls.append(self)
        self.start(self._work(**given), f"mcp call {self._tool}")

    def ended(self) -> None:
        super().ended()
        self._connection.calls.remove(self)

    async def _work(self, **given: Any) -> None:
        """Never raises: whatever happens is an event."""
        try:
            self.happened(await self._called(**given))
        except MCPError as error:
            if (refusal := self._connection.refusal(error.error.code)) is not None:
                self.happened(refusal)
                return
            is_gone = error.error.code in _GONE
            self.happened(CallLostError(self._gone(error)) if is_gone else _refused(error))
        except Exception as error:  # noqa: BLE001 - another's program, and what its answers do to the SDK
            self.happened(CallLostError(self._gone(error)))

    def _gone(self, error: Exception) -> str:
        # It may be broken without having ended.
        self._connection.end()
        why = self._connection.complaint or words_of(error)
        return f"The MCP server {self._connection.server.name} has left during the call: {why}."

    async def _called(self, **given: Any) -> Question | result_pb2.ToolResult:
        while True:
            try:
                result = await self._client.session.call_tool(
                    self._tool, self._arguments, progress_callback=self._progressed, allow_input_required=True, **given
                )
            except RuntimeError as error:
                # The SDK holds results against the tool's own schema.
                return failure(BAD_GATEWAY, f"The result is not what the tool says it gives: {words_of(error)}")
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

    async def sampled(self, params: types.CreateMessageRequestParams) -> types.CreateMessageResult | types.ErrorData:
        request = model_request(params)
        if isinstance(request, types.ErrorData):
            return request
        return sampled(params, await self.ask_model(request))

    async def _progressed(self, progress: float, total: float | None, message: str | None) -> None:
        at = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        self.progressed(f"{at}: {message}\n" if message else f"{at}\n")

    async def elicited(self, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        answer = await self.ask(partial(question_text, params), partial(answer_of, params))
        return answer or types.ElicitResult(action="cancel")


def _refused(error: MCPError) -> result_pb2.ToolResult:
    return failure(_STATUSES.get(error.error.code, BAD_GATEWAY), error.error.message)

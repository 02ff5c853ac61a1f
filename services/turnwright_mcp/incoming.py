"""What a server sends, before the SDK has it: odd tools are mended, and requests that would pile up are refused.

The SDK gives each request a task until it is answered, and reads on. A server that asks without end, or does not read
what it is answered, could so fill the memory of the process that all projects share.
"""

from __future__ import annotations

from typing import Any, Final, Self

import anyio
import mcp_types as types
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import SessionMessage

from turnwright_mcp.transports import Streams

REQUESTS_MAX: Final = 32
"""Requests of a server that wait for an answer at a time; further ones are refused."""
REQUEST_CHARS_MAX: Final = 1024 * 1024
"""Longest request of a server, as JSON: no question and no text for a model may be nearly as long."""


class OpenStreams:
    """Streams that are there already, as the SDK takes them."""

    def __init__(self, streams: Streams) -> None:
        reads, writes = streams
        waiting: dict[types.RequestId | None, bool] = {}
        self._streams = _Reads(reads, writes, waiting), _Writes(writes, waiting)

    async def __aenter__(self) -> Any:
        return self._streams

    async def __aexit__(self, *_: object) -> None:
        """They are closed by who has opened them."""


class _Stream:
    """A stream of messages, and the ids of the requests that wait for an answer: whether that is being sent."""

    def __init__(self, stream: Any, waiting: dict[types.RequestId | None, bool]) -> None:
        self._stream, self._waiting = stream, waiting

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()


class _Reads(_Stream):
    """What a server sends."""

    def __init__(self, stream: Any, writes: Any, waiting: dict[types.RequestId | None, bool]) -> None:
        super().__init__(stream, waiting)
        self._writes = writes

    async def receive(self) -> Any:
        while True:
            found = await self._stream.receive()
            message = getattr(found, "message", None)
            if not isinstance(message, types.JSONRPCRequest):
                self._received(message)
                return found
            if not (problem := self._problem(message)):
                self._waiting[coerce_request_id(message.id)] = False
                return found
            # Nothing more is read of a server before it has taken this.
            error = types.ErrorData(code=types.INVALID_REQUEST, message=problem)
            refusal = types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
            await self._writes.send(SessionMessage(refusal))

    def __aiter__(self) -> _Reads:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    def _received(self, message: Any) -> None:
        match message:
            case types.JSONRPCResponse(result={"tools": [*tools]} as result):
                # Those without a name are left out, and one odd tool does not cost a list the others.
                result["tools"] = [
                    _mended(tool) for tool in tools if isinstance(tool, dict) and isinstance(tool.get("name"), str)
                ]
            case types.JSONRPCNotification(method="notifications/cancelled", params=params):
                # The SDK ends what it does for it, and does not answer; but an answer on its way goes on.
                id_of = cancelled_request_id_from_params(params)
                if id_of is not None and self._waiting.get(key := coerce_request_id(id_of)) is False:
                    del self._waiting[key]

    def _problem(self, request: types.JSONRPCRequest) -> str:
        if coerce_request_id(request.id) in self._waiting:
            return "A request with this id waits for its answer."
        if len(self._waiting) >= REQUESTS_MAX:
            return f"{REQUESTS_MAX} requests wait for an answer, and no more may at a time."
        if len(request.model_dump_json()) > REQUEST_CHARS_MAX:
            return f"A request has at most {REQUEST_CHARS_MAX} characters."
        return ""


class _Writes(_Stream):
    """What a server is sent."""

    async def send(self, item: SessionMessage) -> None:
        is_answer = isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError)
        key = getattr(item.message, "id", None) if is_answer else None
        key = key if key is None else coerce_request_id(key)
        if key in self._waiting:
            self._waiting[key] = True
        try:
            await self._stream.send(item)
        finally:
            self._waiting.pop(key, None)


def _mended(tool: dict[str, Any]) -> dict[str, Any]:
    """A schema that is none of an object takes any arguments."""
    schema = tool.get("inputSchema")
    is_fit = isinstance(schema, dict) and schema.get("type") == "object"
    return tool if is_fit else {**tool, "inputSchema": {"type": "object"}}

"""ToolService before MCP servers: which server a call is for is said by its headers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from turnwright.tool.v1 import result_pb2, tool_service_pb2, tool_service_pb2_grpc

from turnwright_client.tool_server import Fence
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_kit.logs import get_logger
from turnwright_mcp.calls import Answered, McpCall
from turnwright_mcp.connection import LoginNeededError, ServerAwayError
from turnwright_mcp.connections import Connections, registered_in
from turnwright_mcp.held import HELD, CallLostError, HeldCall, HeldEvent, Question
from turnwright_mcp.questions import AnswerError
from turnwright_mcp.registration import McpServer
from turnwright_mcp.results import agent_to_pb

HELD_MAX: Final = 256
"""Calls that wait for a person within a server."""

LOOK_S: Final = 2.0
"""Seconds between two looks for calls that nobody waits for any more."""

_log = get_logger("mcp")
_CallId = tuple[str, str, str]
IsOver = Callable[[str, str, str], Awaitable[bool]]
"""Whether the record of a call is settled: by project, run and path."""


class ToolServicer(tool_service_pb2_grpc.ToolServiceServicer):
    """Implements ToolService."""

    def __init__(self, connections: Connections, is_over: IsOver) -> None:
        self._connections, self._is_over = connections, is_over
        self._looking: asyncio.Task[None] | None = None
        self._fence = Fence()
        self._running: dict[_CallId, HeldCall] = {}
        self._held: OrderedDict[_CallId, HeldCall] = OrderedDict()

    async def Describe(
        self, request: tool_service_pb2.DescribeRequest, context: Any
    ) -> tool_service_pb2.DescribeResponse:
        server = server_of(request.project, context)
        if server.is_agent:
            # It starts with its first task.
            try:
                tool = agent_to_pb(server.name, self._connections.agent_text(server))
            except ValueError as error:
                raise fault(Reason.SERVICE_UNAVAILABLE, f"{server.name}: {error}") from None
            return tool_service_pb2.DescribeResponse(tools=[tool])
        try:
            connection, transport = await self._connections.opened(server)
            listed = await connection.tools(transport)
        except ServerAwayError as error:
            raise _away(server, error, Reason.SERVICE_UNAVAILABLE) from error
        if listed.version == request.version:
            return tool_service_pb2.DescribeResponse(version=listed.version, unchanged=True)
        return tool_service_pb2.DescribeResponse(version=listed.version, tools=listed.tools)

    async def Dispatch(
        self, request: tool_service_pb2.DispatchRequest, context: Any
    ) -> AsyncGenerator[tool_service_pb2.DispatchResponse, None]:
        server = server_of(request.project, context)
        if other := self._fence.other_start(request):
            yield other
            return
        self._check(request)
        key = (request.project, request.run, request.call_id)
        try:
            call, problem = await self._call(server, key, request)
        except ServerAwayError as error:
            # Nothing was sent: of a status that says so nobody has to be in doubt.
            raise _away(server, error, Reason.WORKSPACE_UNAVAILABLE) from error
        if problem is not None:
            yield _response(problem)
            return
        self._keep(key, call)
        is_held = False
        try:
            async for event in call.events():
                if isinstance(event, Question | result_pb2.ToolModelRequest) and event.state == HELD:
                    is_held = True
                    await self._hold(key, call)
                yield _response(event)
        except LoginNeededError as error:
            raise _away(server, error, Reason.WORKSPACE_UNAVAILABLE) from error
        except (CallLostError, MCPError) as error:
            raise fault(Reason.SERVICE_UNAVAILABLE, str(error)) from error
        finally:
            if self._running.get(key) is call:
                del self._running[key]
            if not is_held:
                await call.stop()

    async def Cancel(self, request: tool_service_pb2.CancelRequest, context: Any) -> tool_service_pb2.CancelResponse:
        self._check(request)
        key = (request.project, request.run, request.call_id)
        for calls in (self._running, self._held):
            if (call := calls.pop(key, None)) is not None:
                await call.stop()
        return tool_service_pb2.CancelResponse()

    def _keep(self, key: _CallId, call: HeldCall) -> None:
        self._running[key] = call
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="calls that nobody waits for")

    async def _look(self) -> None:
        """End calls whose records are settled: rejected, aborted, or given up by an executor that came after.

        It ends when there are no calls.
        """
        while calls := {**self._running, **self._held}:
            await asyncio.sleep(LOOK_S)
            for key, call in calls.items():
                if call not in (self._held.get(key), self._running.get(key)):
                    continue
                try:
                    is_over = await self._is_over(*key)
                except TurnwrightError as error:
                    _log.info("call_look_failed", run=key[1], reason=error.reason.name)
                    break
                if is_over:
                    if self._held.get(key) is call:
                        del self._held[key]
                    await call.stop()

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        for call in (*self._running.values(), *self._held.values()):
            await call.stop()

    async def _call(self, server: McpServer, key: _CallId, request: Any) -> tuple[HeldCall, Question | None]:
        """The call that goes on, and the question that it still has. Raises ServerAwayError."""
        state = request.proposal_state if request.HasField("proposal_state") else None
        answer = request.model_answer if request.HasField("model_answer") else None
        if HELD in (state, answer and answer.state):
            call = self._held.pop(key, None)
            if call is None:
                text = "The call that has asked has ended since, with its MCP server or with what held it."
                raise fault(Reason.SERVICE_UNAVAILABLE, text)
            try:
                call.answer(answer or request.comment)
            except AnswerError as error:
                self._held[key] = call
                return call, call.question(str(error))
            return call, None
        for calls in (self._running, self._held):
            if (before := calls.pop(key, None)) is not None:
                # Who had sent it has lost the run, or its stream is broken.
                await before.stop()
        if server.is_agent:
            # Its SDK is loaded with the first agent.
            from turnwright_mcp.agent_calls import AgentCall  # noqa: PLC0415

            agent = AgentCall(self._connections, server, request.arguments)
            await agent.begin()
            return agent, None
        connection, transport = await self._connections.opened(server)
        call = McpCall(connection, await connection.client(transport), request.tool, request.arguments)
        try:
            call.begin(None if state is None else Answered(state, request.comment))
        except AnswerError as error:
            assert state is not None
            return call, Question(str(error), state)
        return call, None

    async def _hold(self, key: _CallId, call: HeldCall) -> None:
        self._held[key] = call
        if len(self._held) > HELD_MAX:
            _, oldest = self._held.popitem(last=False)
            await oldest.stop()

    def _check(self, request: tool_service_pb2.DispatchRequest | tool_service_pb2.CancelRequest) -> None:
        """Raises LEASE_LOST for an executor that has lost the run."""
        if refusal := self._fence.refusal(request):
            raise fault(Reason.LEASE_LOST, refusal)


def _away(server: McpServer, error: ServerAwayError, otherwise: Reason) -> TurnwrightError:
    if isinstance(error, LoginNeededError):
        return fault(Reason.LOGIN_NEEDED, str(error), server=server.name)
    return fault(otherwise, str(error))


def server_of(project: str, context: Any, *, is_of_project: bool = True) -> McpServer:
    """The server that a call is for. Raises INVALID_FIELD."""
    metadata = {name: value for name, value in context.invocation_metadata() or () if isinstance(value, str)}
    try:
        return registered_in(metadata, project, is_of_project=is_of_project)
    except ValueError as error:
        raise fault(Reason.INVALID_FIELD, f"No MCP server can be called like this: {error}.") from None


def _response(event: HeldEvent) -> tool_service_pb2.DispatchResponse:
    if isinstance(event, str):
        return tool_service_pb2.DispatchResponse(progress=result_pb2.ToolProgress(text=event))
    if isinstance(event, Question):
        proposal = result_pb2.ToolProposal(body=event.text, state=event.state)
        return tool_service_pb2.DispatchResponse(proposal=proposal)
    if isinstance(event, result_pb2.ToolModelRequest):
        return tool_service_pb2.DispatchResponse(model_request=event)
    return tool_service_pb2.DispatchResponse(result=event)

"""ToolService before MCP servers: which server a call is for is said by its headers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from turnwright.tool.v1 import result_pb2, tool_service_pb2, tool_service_pb2_grpc

from turnwright_core.errors import Reason, fault
from turnwright_kit.logs import get_logger
from turnwright_mcp.calls import HELD, Answered, CallLostError, McpCall, Question
from turnwright_mcp.connection import ServerAwayError
from turnwright_mcp.connections import Connections, registered_in
from turnwright_mcp.questions import AnswerError
from turnwright_mcp.sampling import sampled_by

EPOCHS_MAX: Final = 4096
"""Runs whose epoch is remembered."""
HELD_MAX: Final = 256
"""Calls that wait for a person within a server."""

_log = get_logger("mcp")
_CallId = tuple[str, str, str]


class ToolServicer(tool_service_pb2_grpc.ToolServiceServicer):
    """Implements ToolService."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._epochs: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._running: dict[_CallId, McpCall] = {}
        self._held: OrderedDict[_CallId, McpCall] = OrderedDict()

    async def Describe(
        self, request: tool_service_pb2.DescribeRequest, context: Any
    ) -> tool_service_pb2.DescribeResponse:
        server = _server(request.project, context)
        try:
            connection, transport = await self._connections.opened(server)
            listed = await connection.tools(transport)
        except ServerAwayError as error:
            raise fault(Reason.SERVICE_UNAVAILABLE, str(error)) from error
        if listed.version == request.version:
            return tool_service_pb2.DescribeResponse(version=listed.version, unchanged=True)
        return tool_service_pb2.DescribeResponse(version=listed.version, tools=listed.tools)

    async def Dispatch(
        self, request: tool_service_pb2.DispatchRequest, context: Any
    ) -> AsyncGenerator[tool_service_pb2.DispatchResponse, None]:
        server = _server(request.project, context)
        self._check_epoch(request.project, request.run, request.epoch)
        key = (request.project, request.run, request.call_id)
        try:
            call, problem = await self._call(server, key, request)
        except ServerAwayError as error:
            # Nothing was sent: of a status that says so nobody has to be in doubt.
            raise fault(Reason.WORKSPACE_UNAVAILABLE, str(error)) from error
        if problem is not None:
            yield _proposal(problem)
            return
        self._running[key] = call
        is_held = False
        try:
            async for event in call.events():
                if isinstance(event, Question):
                    is_held = event.state == HELD
                    if is_held:
                        await self._hold(key, call)
                    yield _proposal(event)
                elif isinstance(event, str):
                    progress = result_pb2.ToolProgress(text=event)
                    yield tool_service_pb2.DispatchResponse(progress=progress)
                else:
                    yield tool_service_pb2.DispatchResponse(result=event)
        except (CallLostError, MCPError) as error:
            raise fault(Reason.SERVICE_UNAVAILABLE, str(error)) from error
        finally:
            self._running.pop(key, None)
            if not is_held:
                await call.stop()

    async def Cancel(self, request: tool_service_pb2.CancelRequest, context: Any) -> tool_service_pb2.CancelResponse:
        self._check_epoch(request.project, request.run, request.epoch)
        key = (request.project, request.run, request.call_id)
        for calls in (self._running, self._held):
            if (call := calls.pop(key, None)) is not None:
                await call.stop()
        return tool_service_pb2.CancelResponse()

    async def close(self) -> None:
        for call in (*self._running.values(), *self._held.values()):
            await call.stop()

    async def _call(self, server: Any, key: _CallId, request: Any) -> tuple[McpCall, Question | None]:
        """The call that goes on, and the question that it still has. Raises ServerAwayError."""
        state = request.proposal_state if request.HasField("proposal_state") else None
        if state == HELD:
            call = self._held.pop(key, None)
            if call is None:
                text = "The call that has asked has ended since, with its MCP server or with what held it."
                raise fault(Reason.SERVICE_UNAVAILABLE, text)
            try:
                call.answer(request.comment)
            except AnswerError as error:
                self._held[key] = call
                return call, call.question(str(error))
            return call, None
        if (before := self._running.pop(key, None)) is not None:
            # Who had sent it has lost the run, or its stream is broken.
            await before.stop()
        connection, transport = await self._connections.opened(server)
        call = McpCall(connection, await connection.client(transport), request.tool, request.arguments)
        sample = sampled_by(connection.registration.sampling, request)
        try:
            call.begin(sample, None if state is None else Answered(state, request.comment))
        except AnswerError as error:
            assert state is not None
            return call, Question(str(error), state)
        return call, None

    async def _hold(self, key: _CallId, call: McpCall) -> None:
        self._held[key] = call
        if len(self._held) > HELD_MAX:
            _, oldest = self._held.popitem(last=False)
            await oldest.stop()

    def _check_epoch(self, project: str, run: str, epoch: int) -> None:
        """Raises LEASE_LOST for an executor that has lost the run."""
        if not epoch:
            return
        latest = self._epochs.get((project, run), 0)
        if epoch < latest:
            raise fault(Reason.LEASE_LOST, f"The run {run} is at epoch {latest}, and the call came with {epoch}.")
        self._epochs[project, run] = epoch
        self._epochs.move_to_end((project, run))
        if len(self._epochs) > EPOCHS_MAX:
            self._epochs.popitem(last=False)


def _server(project: str, context: Any) -> Any:
    metadata = {name: value for name, value in context.invocation_metadata() or () if isinstance(value, str)}
    try:
        return registered_in(metadata, project)
    except ValueError as error:
        raise fault(Reason.INVALID_FIELD, f"No MCP server can be called like this: {error}.") from None


def _proposal(question: Question) -> tool_service_pb2.DispatchResponse:
    proposal = result_pb2.ToolProposal(body=question.text, state=question.state)
    return tool_service_pb2.DispatchResponse(proposal=proposal)

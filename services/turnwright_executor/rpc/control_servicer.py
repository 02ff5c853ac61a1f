"""Rpcs of control.proto: commands of clients.

Each change is one transaction of the store. The run's owner, whichever executor that is, sees it in the change feed.
Source: rows RU117-RU120, RU226-RU232, RU238, RU240-RU246; decisions C13, C14, C31.
"""

from __future__ import annotations

from typing import Any

from turnwright.executor.v1 import control_pb2 as pb
from turnwright.projects.v1.project_service_pb2 import SetFileConstraintsRequest
from turnwright.projects.v1.project_service_pb2_grpc import ProjectServiceStub

from turnwright_core.wire.claims import constraint_to_pb
from turnwright_core.wire.entries import entry_to_pb
from turnwright_executor.clients.file_constraints import kept_file
from turnwright_executor.clients.tool_calls import ClientCommand, ToolCalls
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.rpc.forwarding import Forwarding
from turnwright_grammar.reply import Command
from turnwright_kit.identity.caller import current_caller
from turnwright_kit.identity.policy import Policy


class ExecutorControlRpcs(Forwarding):
    """Rpcs of control.proto; they are for clients, not for models."""

    _calls: ToolCalls
    _policy: Policy

    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        """Carry out a client's command with a tool. File constraints that it implies are set first."""
        caller = current_caller()
        written = Command(request.tool, dict(request.attributes), request.body)
        command, kept = kept_file(await self._calls.read(request.project, written))
        self._policy.check_project(caller, self._calls.right_for(command), request.project, f"CallTool {request.tool}")
        await self.check_seen(request)
        if kept:
            wanted = SetFileConstraintsRequest(project=request.project, constraints=[constraint_to_pb(kept)])
            projects = ProjectServiceStub(self.store.channel)
            await self.store.call(projects.SetFileConstraints, wanted, caller=caller)
        address = RunAddress(request.project, request.run)
        call = ClientCommand(address, command, caller, request.request_id)
        return pb.CallToolResponse(record=entry_to_pb(await self._calls.call(call)))

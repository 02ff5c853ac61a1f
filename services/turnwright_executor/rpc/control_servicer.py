"""Rpcs of control.proto: commands of clients, and their changes of models and file constraints.

Each change is one transaction of the store. The run's owner, whichever executor that is, sees it in the change feed.
Source: rows RU117-RU120, RU226-RU232, RU238, RU240-RU246; decisions C13, C14, C31.
"""

from __future__ import annotations

from typing import Any

from turnwright.executor.v1 import control_pb2 as pb
from turnwright.store.v1 import registry_pb2

from turnwright_core.entries import Tier
from turnwright_core.kit.auth import check_deployment, current_caller
from turnwright_core.wire.entries import entry_to_pb
from turnwright_executor.clients.file_constraints import kept_file
from turnwright_executor.clients.tool_calls import ClientCommand, ToolCalls
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.rpc.forwarding import Forward, Forwarding, check_floor
from turnwright_grammar.reply import Command
from turnwright_grammar.tools import resolve


class ExecutorControlRpcs(Forwarding):
    """Rpcs of control.proto; they are for clients, not for models."""

    _calls: ToolCalls
    _opens_models: bool

    SetFileConstraints = Forward(floor=Tier.CLIENT)

    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        """Carry out a client's command with a tool. File constraints that it implies are set first.

        It may have the shape of a tag, whose body is an argument.
        """
        check_floor(Tier.CLIENT, "CallTool")
        caller = current_caller()
        command, kept = kept_file(resolve(Command(request.tool, dict(request.attributes), request.body)))
        if kept:
            constraint = registry_pb2.FileConstraint(pattern=kept.pattern, kind=kept.kind)
            wanted = registry_pb2.SetFileConstraintsRequest(project=request.project, constraints=[constraint])
            await self.store.call(self.rows.SetFileConstraints, wanted, caller=caller)
        address = RunAddress(request.project, request.run)
        call = ClientCommand(address, command, caller.principal, request.request_id, is_trusted=caller.holds_secret)
        return pb.CallToolResponse(record=entry_to_pb(await self._calls.call(call)))

    async def AddModel(self, request: pb.AddModelRequest, context: Any) -> pb.AddModelResponse:
        """Add or replace a model."""
        self._check_models("AddModel")
        await self.check_vendor(request.model.vendor_model, "model.vendor_model")
        wanted = registry_pb2.PutModelsRequest(models=[request.model])
        return pb.AddModelResponse(model=(await self.store.call(self.rows.PutModels, wanted)).models[0])

    async def RemoveModel(self, request: pb.RemoveModelRequest, context: Any) -> pb.RemoveModelResponse:
        self._check_models("RemoveModel")
        await self.store.call(self.rows.DeleteModel, registry_pb2.DeleteModelRequest(alias=request.alias))
        return pb.RemoveModelResponse()

    def _check_models(self, method: str) -> None:
        """Models are shared by the whole deployment and cost money. Raises TIER_FORBIDDEN."""
        check_floor(Tier.CLIENT, method)
        if not self._opens_models:
            check_deployment(method, "TURNWRIGHT_CLIENT_MODELS=true")

"""Rpcs of control.proto and watch.proto: what clients change, tell and follow beside the work of runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct
from turnwright.executor.v1 import control_pb2 as pb
from turnwright.executor.v1 import watch_pb2
from turnwright.store.v1 import registry_pb2

from turnwright_core.entries import Tier
from turnwright_core.errors import Reason, fault
from turnwright_core.kit.auth import check_deployment, current_caller
from turnwright_core.runs import check_vendor
from turnwright_core.wire.entries import entry_to_pb
from turnwright_executor.clients.control import Control
from turnwright_executor.clients.file_constraints import kept_file
from turnwright_executor.clients.project_watch import ProjectWatch
from turnwright_executor.clients.tool_calls import Call, ToolCalls
from turnwright_executor.ports.address import RunAddress
from turnwright_grammar import Command


class Steering(Struct, frozen=True):
    """What the rpcs of this module work with."""

    control: Control
    calls: ToolCalls
    project_watch: ProjectWatch
    catalogue: watch_pb2.DiscoverResponse
    opens_models: bool = False
    """Whether derived tokens may change models."""


class ControlRpcs:
    """Rpcs of control.proto and watch.proto; they are for clients, not for models."""

    _control: Control
    _calls: ToolCalls
    _project_watch: ProjectWatch
    _catalogue: watch_pb2.DiscoverResponse
    _opens_models: bool

    async def ForkRun(self, request: pb.ForkRunRequest, context: Any) -> pb.ForkRunResponse:
        """Make a run that begins with what another one sees."""
        _check_client("ForkRun")
        return await self._control.rows.fork_run(request)

    async def RenameRun(self, request: pb.RenameRunRequest, context: Any) -> pb.RenameRunResponse:
        """Give a run another alias."""
        _check_client("RenameRun")
        return await self._control.rows.rename_run(request)

    async def RemoveRun(self, request: pb.RemoveRunRequest, context: Any) -> pb.RemoveRunResponse:
        """Remove a run."""
        _check_client("RemoveRun")
        return await self._control.rows.remove_run(request)

    async def ConfigureRun(self, request: pb.ConfigureRunRequest, context: Any) -> pb.ConfigureRunResponse:
        """Change settings."""
        _check_client("ConfigureRun")
        return await self._control.rows.configure_run(request)

    async def InjectMessage(self, request: pb.InjectMessageRequest, context: Any) -> pb.InjectMessageResponse:
        """Tell the model something in its next turn."""
        _check_client("InjectMessage")
        return await self._control.inject(request)

    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        """Have a tool carry out a command; what the project is to keep is said before."""
        _check_client("CallTool")
        command, kept = kept_file(Command(request.tool, dict(request.attributes), request.body))
        if kept:
            constraint = registry_pb2.FileConstraint(pattern=kept.pattern, kind=kept.kind)
            wanted = pb.SetFileConstraintsRequest(project=request.project, constraints=[constraint])
            await self._control.rows.set_file_constraints(wanted)
        address = RunAddress(request.project, request.run)
        caller = current_caller()
        call = Call(address, command, caller.principal, request.request_id, is_trusted=caller.holds_secret)
        return pb.CallToolResponse(record=entry_to_pb(await self._calls.call(call)))

    async def ListEntries(self, request: pb.ListEntriesRequest, context: Any) -> pb.ListEntriesResponse:
        """Entries by patterns."""
        return await self._control.rows.list_entries(request)

    async def AddModel(self, request: pb.AddModelRequest, context: Any) -> pb.AddModelResponse:
        """Add or replace a model."""
        self._check_models("AddModel")
        _check_vendor(request.model.vendor_model)
        return await self._control.rows.add_model(request)

    async def RemoveModel(self, request: pb.RemoveModelRequest, context: Any) -> pb.RemoveModelResponse:
        """Remove a model."""
        self._check_models("RemoveModel")
        return await self._control.rows.remove_model(request)

    def _check_models(self, method: str) -> None:
        """Models are the whole deployment's, and cost money. Raises TIER_FORBIDDEN."""
        _check_client(method)
        if not self._opens_models:
            check_deployment(method, "TURNWRIGHT_CLIENT_MODELS=true")

    async def SetFileConstraints(
        self, request: pb.SetFileConstraintsRequest, context: Any
    ) -> pb.SetFileConstraintsResponse:
        """Change what a project says of its files."""
        _check_client("SetFileConstraints")
        return await self._control.rows.set_file_constraints(request)

    async def ListFileConstraints(
        self, request: pb.ListFileConstraintsRequest, context: Any
    ) -> pb.ListFileConstraintsResponse:
        """What a project says of its files."""
        return await self._control.rows.list_file_constraints(request)

    async def Notify(self, request: watch_pb2.NotifyRequest, context: Any) -> watch_pb2.NotifyResponse:
        """Tell the watchers of a run something."""
        _check_client("Notify")
        await self._control.notify(request)
        return watch_pb2.NotifyResponse()

    async def WatchRuns(
        self, request: watch_pb2.WatchRunsRequest, context: Any
    ) -> AsyncIterator[watch_pb2.WatchRunsResponse]:
        """Stream the runs of a project."""
        _check_client("WatchRuns")
        told = self._project_watch.watch(request.project)
        try:
            async for message in told:
                yield message
        finally:
            await told.aclose()

    async def Discover(self, request: watch_pb2.DiscoverRequest, context: Any) -> watch_pb2.DiscoverResponse:
        """Tell what this executor offers."""
        return self._catalogue


def _check_client(method: str) -> None:
    """Refuse a call at the tier of a model. Raises TIER_FORBIDDEN."""
    tier = current_caller().tier
    if tier < Tier.CLIENT:
        message = f"This needs a token of the tier client; the one in use has the tier {tier.name.lower()}."
        raise fault(Reason.TIER_FORBIDDEN, message, method=method, tier="client", ceiling=tier.name.lower())


def _check_vendor(vendor_model: str) -> None:
    """Refuse a model of a vendor that there is not; how names are built, the store checks. Raises INVALID_FIELD."""
    try:
        if "/" in vendor_model:
            check_vendor(vendor_model)
    except ValueError as error:
        raise fault(Reason.INVALID_FIELD, str(error), field="model.vendor_model") from None

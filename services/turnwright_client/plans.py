"""The calls of a client for the plans of a run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from functools import partial
from typing import Final, Literal

from turnwright.executor.v1 import executor_service_pb2, executor_service_pb2_grpc, plan_pb2
from turnwright.types.v1 import plan_pb2 as types_pb2

from turnwright_client.watch import WatchPolicy, watch_inbox
from turnwright_core.kit.peer import Peer
from turnwright_core.limits import PAGE_SIZE_MAX

PlanForm = Literal["none", "legacy", "operations"]
"""The form in which a watch receives plans."""

PLAN_FORMS: Final[Mapping[PlanForm, executor_service_pb2.PlanEvents.ValueType]] = {
    "none": executor_service_pb2.PLAN_EVENTS_UNSPECIFIED,
    "legacy": executor_service_pb2.PLAN_EVENTS_LEGACY,
    "operations": executor_service_pb2.PLAN_EVENTS_OPERATIONS,
}

PlansMessage = plan_pb2.WatchPlansResponse


class PlanCalls:
    """The calls of plan.proto. Every method raises TurnwrightError; an empty `plan_id` means `main`."""

    _peer: Peer
    _policy: WatchPolicy
    _stub: executor_service_pb2_grpc.ExecutorServiceAsyncStub

    async def set_plan(self, project: str, run: str, plan: types_pb2.Plan, request_id: str = "") -> types_pb2.Plan:
        """Create or replace a plan; its id, kind, body or items, and mode are used."""
        request = plan_pb2.SetPlanRequest(project=project, run=run, plan=plan, request_id=request_id)
        return (await self._peer.call(self._stub.SetPlan, request)).plan

    async def update_plan(
        self, project: str, run: str, delta: str, *, plan_id: str = "", request_id: str = ""
    ) -> types_pb2.Plan:
        """Append to a plan; returns it with all deltas of its version."""
        request = plan_pb2.UpdatePlanRequest(
            project=project, run=run, plan_id=plan_id, delta=delta, request_id=request_id
        )
        return (await self._peer.call(self._stub.UpdatePlan, request)).plan

    async def remove_plan(self, project: str, run: str, *, plan_id: str = "", request_id: str = "") -> None:
        """Remove a plan; its versions can still be read."""
        request = plan_pb2.RemovePlanRequest(project=project, run=run, plan_id=plan_id, request_id=request_id)
        await self._peer.call(self._stub.RemovePlan, request)

    async def get_plan(self, project: str, run: str, *, plan_id: str = "", version: int = 0) -> types_pb2.Plan:
        """A plan with its deltas; version 0 is the latest, unless the plan was removed."""
        request = plan_pb2.GetPlanRequest(project=project, run=run, plan_id=plan_id, version=version)
        return (await self._peer.call(self._stub.GetPlan, request)).plan

    async def list_plans(self, project: str, run: str) -> AsyncIterator[types_pb2.Plan]:
        """The latest version of each plan of the run, with its deltas, sorted by plan_id."""
        request = plan_pb2.ListPlansRequest(project=project, run=run, page_size=PAGE_SIZE_MAX)
        async for page in self._peer.pages(self._stub.ListPlans, request):
            for plan in page.plans:
                yield plan

    def watch_plans(self, project: str, run: str) -> AsyncGenerator[PlansMessage, None]:
        """Stream the plans of a run, then changes. Reconnects by itself.

        After a reconnect a snapshot replaces everything. If you stop before it ends, close it (`contextlib.aclosing`).
        """
        request = plan_pb2.WatchPlansRequest(project=project, run=run)
        return watch_inbox(partial(self._peer.stream, self._stub.WatchPlans, request, None), self._policy)

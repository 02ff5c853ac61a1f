"""The store's gRPC client: the plans of a run."""

from __future__ import annotations

from turnwright.plans.v1 import plan_service_pb2 as pb
from turnwright.plans.v1 import plan_service_pb2_grpc
from turnwright_values.plans import PlanWriter
from turnwright_values.types import Cursor

from turnwright_core.plans.plan import Plan
from turnwright_core.wire.codec import codec
from turnwright_core.wire.entries import cursor_from_pb
from turnwright_core.wire.plans import plan_from_pb, plan_to_pb
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.peers.schemes import KnownSchemes
from turnwright_executor.peers.store_writes import StoreWrites
from turnwright_kit.peer import Peer

_written, _ = codec(PlanWriter, pb.PlanWriter)


class StorePlans(StoreWrites):
    """The plans of ports.Ledger."""

    def __init__(self, peer: Peer, schemes: KnownSchemes) -> None:
        super().__init__(peer, schemes)
        self._plans = plan_service_pb2_grpc.PlanServiceStub(peer.channel)

    async def get_plan(self, address: RunAddress, plan_id: str, version: int = 0) -> Plan:
        request = pb.GetPlanRequest(project=address.project, run=address.run, plan_id=plan_id, version=version)
        return plan_from_pb((await self._call(self._plans.GetPlan, request)).plan)

    async def list_plans(self, address: RunAddress) -> list[Plan]:
        request = pb.ListPlansRequest(project=address.project, run=address.run)
        found: list[Plan] = []
        while True:
            answer = await self._call(self._plans.ListPlans, request)
            found += map(plan_from_pb, answer.plans)
            if not answer.next_page_token:
                return found
            request.page_token = answer.next_page_token

    async def set_plan(self, address: RunAddress, by: PlanWriter, plan: Plan, request_id: str) -> tuple[Plan, Cursor]:
        request = pb.SetPlanRequest(
            project=address.project,
            run=address.run,
            plan=plan_to_pb(plan),
            written_by=_written(by),
            request_id=request_id,
        )
        answer = await self._call(self._plans.SetPlan, request)
        return plan_from_pb(answer.plan), cursor_from_pb(answer.cursor)

    async def update_plan(
        self, address: RunAddress, by: PlanWriter, plan_id: str, delta: str, request_id: str
    ) -> tuple[Plan, Cursor]:
        request = pb.UpdatePlanRequest(
            project=address.project,
            run=address.run,
            plan_id=plan_id,
            delta=delta,
            written_by=_written(by),
            request_id=request_id,
        )
        answer = await self._call(self._plans.UpdatePlan, request)
        return plan_from_pb(answer.plan), cursor_from_pb(answer.cursor)

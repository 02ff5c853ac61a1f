"""The store's gRPC client: the plans of a run."""

from __future__ import annotations

from turnwright.store.v1 import plan_pb2, write_pb2

from turnwright_core.entries import Cursor
from turnwright_core.plans.plan import Plan
from turnwright_core.wire.entries import cursor_from_pb
from turnwright_core.wire.plans import plan_from_pb, plan_to_pb
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.edge.store_writes import StoreWrites
from turnwright_executor.ports.ledger import PlanWriter


class StorePlans(StoreWrites):
    """The plans of ports.Ledger."""

    async def get_plan(self, address: RunAddress, plan_id: str, version: int = 0) -> Plan:
        request = plan_pb2.GetPlanRequest(project=address.project, run=address.run, plan_id=plan_id, version=version)
        return plan_from_pb((await self._call(self.stub.GetPlan, request)).plan)

    async def set_plan(self, address: RunAddress, by: PlanWriter, plan: Plan, request_id: str) -> tuple[Plan, Cursor]:
        request = plan_pb2.SetPlanRequest(
            project=address.project,
            run=address.run,
            fence=_fence(by.epoch),
            plan=plan_to_pb(plan),
            writer=int(by.tier),  # type: ignore[arg-type]
            request_id=request_id,
            window=by.window,
        )
        answer = await self._call(self.stub.SetPlan, request)
        return plan_from_pb(answer.plan), cursor_from_pb(answer.cursor)

    async def update_plan(
        self, address: RunAddress, by: PlanWriter, plan_id: str, delta: str, request_id: str
    ) -> tuple[Plan, Cursor]:
        request = plan_pb2.UpdatePlanRequest(
            project=address.project,
            run=address.run,
            fence=_fence(by.epoch),
            plan_id=plan_id,
            delta=delta,
            writer=int(by.tier),  # type: ignore[arg-type]
            request_id=request_id,
            window=by.window,
        )
        answer = await self._call(self.stub.UpdatePlan, request)
        return plan_from_pb(answer.plan), cursor_from_pb(answer.cursor)


def _fence(epoch: int | None) -> write_pb2.Fence | None:
    return None if epoch is None else write_pb2.Fence(epoch=epoch)

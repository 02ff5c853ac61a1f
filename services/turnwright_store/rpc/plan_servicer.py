"""Rpcs of PlanService."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection
from turnwright.plans.v1 import plan_service_pb2 as pb
from turnwright.plans.v1 import plan_service_pb2_grpc
from turnwright.types.v1 import heartbeat_pb2
from turnwright_values.types import Tier

from turnwright_core.plans.plan import MAIN
from turnwright_core.wire.codec import known
from turnwright_core.wire.entries import cursor_to_pb
from turnwright_core.wire.plans import plan_from_pb, plan_to_pb
from turnwright_core.wire.times import time_to_pb
from turnwright_kit.access import check_min_tier
from turnwright_kit.identity.caller import Caller
from turnwright_store.app import plans
from turnwright_store.app.plans import PlanChange
from turnwright_store.app.watch_plans import PlansChange, PlansWatch, watch_plans
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, Fields, address_of, mutation, query, run_locks, watch


class PlanServicer(Calls, plan_service_pb2_grpc.PlanServiceServicer):
    """Serves turnwright.plans.v1.PlanService."""

    @mutation(locks=run_locks)
    def SetPlan(self, request: pb.SetPlanRequest, tx: Transaction, caller: Caller) -> Fields:
        plan, cursor = plans.set_plan(tx, self._rules, _by(request, caller), plan_from_pb(request.plan))
        return {"plan": plan_to_pb(plan), "cursor": cursor_to_pb(cursor)}

    @mutation(locks=run_locks)
    def UpdatePlan(self, request: pb.UpdatePlanRequest, tx: Transaction, caller: Caller) -> Fields:
        plan, cursor = plans.update_plan(tx, self._rules, _by(request, caller), request.plan_id or MAIN, request.delta)
        return {"plan": plan_to_pb(plan), "cursor": cursor_to_pb(cursor)}

    @mutation(locks=run_locks)
    def DeletePlan(self, request: pb.DeletePlanRequest, tx: Transaction, caller: Caller) -> Fields:
        by = PlanChange(caller, address_of(request))
        return {"cursor": cursor_to_pb(plans.delete_plan(tx, self._rules, by, request.plan_id or MAIN))}

    @query
    def GetPlan(self, request: pb.GetPlanRequest, connection: Connection) -> Fields:
        plan = plans.get_plan(connection, address_of(request), request.plan_id or MAIN, request.version)
        return {"plan": plan_to_pb(plan)}

    @query
    def ListPlans(self, request: pb.ListPlansRequest, connection: Connection) -> Fields:
        found, token = plans.list_plans(connection, address_of(request), request.page_size, request.page_token)
        return {"plans": map(plan_to_pb, found), "next_page_token": token}

    def _change_to_pb(self, change: PlansChange) -> pb.WatchPlansResponse:
        time, plans = time_to_pb(self._service.clock_ms()), list(map(plan_to_pb, change.plans))
        if change.part is not None:
            snapshot = pb.PlansSnapshot(part=change.part, last=change.is_last, plans=plans)
            return pb.WatchPlansResponse(time=time, snapshot=snapshot)
        if change.removed:
            return pb.WatchPlansResponse(time=time, removed_plan_id=change.removed)
        if plans:
            return pb.WatchPlansResponse(time=time, updated=plans[0])
        return pb.WatchPlansResponse(time=time, heartbeat=heartbeat_pb2.Heartbeat())

    @watch(_change_to_pb)
    async def WatchPlans(self, request: pb.WatchPlansRequest) -> PlansWatch:
        return await watch_plans(self._database, address_of(request))


def _by(request: Any, caller: Caller) -> PlanChange:
    if not request.HasField("written_by"):
        return PlanChange(caller, address_of(request))
    check_min_tier(caller, Tier.SYSTEM, "written_by")
    writer = request.written_by
    tier = known(Tier, writer.tier, "written_by.tier") or Tier.CLIENT
    epoch = writer.epoch if writer.HasField("epoch") else None
    return PlanChange(caller, address_of(request), tier, epoch, writer.window)

"""Rpcs of plan.proto."""

from __future__ import annotations

from typing import Any

from turnwright.store.v1 import plan_pb2

from turnwright_core.entries import Tier
from turnwright_core.kit.auth import Caller
from turnwright_core.plans.plan import MAIN
from turnwright_core.wire.codec import known
from turnwright_core.wire.entries import cursor_to_pb
from turnwright_core.wire.plans import plan_from_pb, plan_to_pb
from turnwright_store.app import plans
from turnwright_store.app.plans import PlanChange
from turnwright_store.ports import Connection, Transaction
from turnwright_store.rpc.calls import Calls, Fields, address_of, mutation, query, run_locks


def _by(request: Any, caller: Caller) -> PlanChange:
    epoch = request.fence.epoch if request.HasField("fence") else None
    has_window = not isinstance(request, plan_pb2.RemovePlanRequest) and request.HasField("window")
    window = request.window if has_window else None
    return PlanChange(caller, address_of(request), epoch, known(Tier, request.writer, "writer"), window)


class PlanRpcs(Calls):
    """Rpcs of plan.proto."""

    @mutation(locks=run_locks, min_tier=Tier.MODEL)
    def SetPlan(self, request: plan_pb2.SetPlanRequest, tx: Transaction, caller: Caller) -> Fields:
        plan, cursor = plans.set_plan(tx, self._rules, _by(request, caller), plan_from_pb(request.plan))
        return {"plan": plan_to_pb(plan), "cursor": cursor_to_pb(cursor)}

    @mutation(locks=run_locks, min_tier=Tier.MODEL)
    def UpdatePlan(self, request: plan_pb2.UpdatePlanRequest, tx: Transaction, caller: Caller) -> Fields:
        plan, cursor = plans.update_plan(tx, self._rules, _by(request, caller), request.plan_id or MAIN, request.delta)
        return {"plan": plan_to_pb(plan), "cursor": cursor_to_pb(cursor)}

    @mutation(locks=run_locks, min_tier=Tier.MODEL)
    def RemovePlan(self, request: plan_pb2.RemovePlanRequest, tx: Transaction, caller: Caller) -> Fields:
        cursor = plans.remove_plan(tx, self._rules, _by(request, caller), request.plan_id or MAIN)
        return {"cursor": cursor_to_pb(cursor)}

    @query
    def GetPlan(self, request: plan_pb2.GetPlanRequest, connection: Connection) -> Fields:
        plan = plans.get_plan(connection, address_of(request), request.plan_id or MAIN, request.version)
        return {"plan": plan_to_pb(plan)}

    @query
    def ListPlans(self, request: plan_pb2.ListPlansRequest, connection: Connection) -> Fields:
        found, token = plans.list_plans(connection, address_of(request), request.page_size, request.page_token)
        return {"plans": map(plan_to_pb, found), "next_page_token": token}

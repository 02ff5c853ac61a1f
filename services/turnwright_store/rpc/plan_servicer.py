"""Rpcs of plan.proto."""

from __future__ import annotations

from functools import partial
from typing import Any

from turnwright.store.v1 import plan_pb2

from turnwright_core.checks import invalid
from turnwright_core.entries import Tier
from turnwright_core.kit.auth import Caller
from turnwright_core.plans import MAIN
from turnwright_core.wire.entries import cursor_to_pb
from turnwright_core.wire.plans import plan_from_pb, plan_to_pb
from turnwright_store.app import plans
from turnwright_store.app.plans import Writing
from turnwright_store.app.reading import Address
from turnwright_store.domain.locks import run_lock
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls


def _by(request: Any, caller: Caller) -> Writing:
    epoch = request.fence.epoch if request.HasField("fence") else None
    return Writing(caller, Address(request.project, request.run), epoch, _tier(request.writer))


def _tier(value: int) -> Tier:
    try:
        return Tier(value)
    except ValueError:
        raise invalid("writer", f"{value} is not a tier.") from None


class PlanRpcs(Calls):
    """Rpcs of plan.proto."""

    async def SetPlan(self, request: plan_pb2.SetPlanRequest, _context: Any) -> plan_pb2.SetPlanResponse:
        """See StoreService."""
        wanted = plan_from_pb(request.plan)

        def work(tx: Transaction, caller: Caller) -> plan_pb2.SetPlanResponse:
            plan, cursor = plans.set_plan(tx, self._basis, _by(request, caller), wanted)
            return plan_pb2.SetPlanResponse(plan=plan_to_pb(plan), cursor=cursor_to_pb(cursor))

        return await self._once(
            request, plan_pb2.SetPlanResponse, work, floor=Tier.MODEL, locks={run_lock(request.project, request.run)}
        )

    async def AppendPlan(self, request: plan_pb2.AppendPlanRequest, _context: Any) -> plan_pb2.AppendPlanResponse:
        """See StoreService."""

        def work(tx: Transaction, caller: Caller) -> plan_pb2.AppendPlanResponse:
            by = _by(request, caller)
            plan, cursor = plans.append_plan(tx, self._basis, by, request.plan_id or MAIN, request.delta)
            return plan_pb2.AppendPlanResponse(plan=plan_to_pb(plan), cursor=cursor_to_pb(cursor))

        return await self._once(
            request, plan_pb2.AppendPlanResponse, work, floor=Tier.MODEL, locks={run_lock(request.project, request.run)}
        )

    async def RemovePlan(self, request: plan_pb2.RemovePlanRequest, _context: Any) -> plan_pb2.RemovePlanResponse:
        """See StoreService."""

        def work(tx: Transaction, caller: Caller) -> plan_pb2.RemovePlanResponse:
            cursor = plans.remove_plan(tx, self._basis, _by(request, caller), request.plan_id or MAIN)
            return plan_pb2.RemovePlanResponse(cursor=cursor_to_pb(cursor))

        return await self._once(
            request, plan_pb2.RemovePlanResponse, work, floor=Tier.MODEL, locks={run_lock(request.project, request.run)}
        )

    async def GetPlan(self, request: plan_pb2.GetPlanRequest, _context: Any) -> plan_pb2.GetPlanResponse:
        """See StoreService."""
        query = partial(
            plans.get_plan,
            address=Address(request.project, request.run),
            plan_id=request.plan_id or MAIN,
            version=request.version,
        )
        return plan_pb2.GetPlanResponse(plan=plan_to_pb(await self._database.read(query)))

    async def ListPlans(self, request: plan_pb2.ListPlansRequest, _context: Any) -> plan_pb2.ListPlansResponse:
        """See StoreService."""
        query = partial(
            plans.list_plans,
            address=Address(request.project, request.run),
            size=request.page_size,
            token=request.page_token,
        )
        found, token = await self._database.read(query)
        return plan_pb2.ListPlansResponse(plans=map(plan_to_pb, found), next_page_token=token)

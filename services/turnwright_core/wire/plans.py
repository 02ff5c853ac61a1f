"""Protobuf conversion of plans."""

from __future__ import annotations

from turnwright.types.v1 import plan_pb2
from turnwright_values.types import PlanDelta, PlanItem, PlanKind, PlanPriority, PlanStatus

from turnwright_core.checks import invalid
from turnwright_core.plans.items import items_json, readable_items
from turnwright_core.plans.plan import MAIN, Plan
from turnwright_core.wire.codec import codec, known, written
from turnwright_core.wire.times import time_from_pb, time_to_pb

_delta_to_pb, _delta_from_pb = codec(PlanDelta, plan_pb2.PlanDelta)


item_to_pb, item_from_pb = codec(
    PlanItem,
    plan_pb2.PlanItem,
    priority=(int, lambda number: known(PlanPriority, number or PlanPriority.MEDIUM, "priority")),
    status=(int, lambda number: known(PlanStatus, number or PlanStatus.PENDING, "status")),
)


def plan_to_pb(plan: Plan) -> plan_pb2.Plan:
    return plan_pb2.Plan(
        plan_id=plan.plan_id,
        kind=int(plan.kind),  # type: ignore[arg-type]
        body=plan.body,
        version=plan.version,
        mode=plan.mode,
        deltas=map(_delta_to_pb, plan.deltas),
        update_time=time_to_pb(plan.update_ms),
        items=map(item_to_pb, readable_items(plan.body)) if plan.kind is PlanKind.ITEMS else (),
    )


def plan_from_pb(plan: plan_pb2.Plan) -> Plan:
    """Decode a plan and fill in the default id and kind. Raises InvalidError."""
    kind = known(PlanKind, plan.kind or PlanKind.MARKDOWN, "kind")
    body = plan.body
    if not body and kind is PlanKind.ITEMS:
        body = items_json(map(item_from_pb, plan.items))
    elif plan.items and kind is not PlanKind.ITEMS:
        raise invalid("items", "Only a plan of the kind ITEMS can have items.")
    deltas = tuple(map(_delta_from_pb, plan.deltas))
    return Plan(plan.plan_id or MAIN, kind, body, plan.version, plan.mode, deltas, time_from_pb(plan.update_time))


written(Plan, plan_to_pb, plan_from_pb)

"""Plans on the wire."""

from __future__ import annotations

from turnwright.types.v1 import plan_pb2

from turnwright_core.plans import MAIN, Plan, PlanDelta, PlanKind
from turnwright_core.wire.codec import codec
from turnwright_core.wire.entries import known
from turnwright_core.wire.times import time_from_pb, time_to_pb

_delta_to_pb, _delta_from_pb = codec(PlanDelta, plan_pb2.PlanDelta)


def plan_to_pb(plan: Plan) -> plan_pb2.Plan:
    return plan_pb2.Plan(
        plan_id=plan.plan_id,
        kind=int(plan.kind),  # type: ignore[arg-type]
        body=plan.body,
        version=plan.version,
        mode=plan.mode,
        deltas=map(_delta_to_pb, plan.deltas),
        update_time=time_to_pb(plan.update_ms),
    )


def plan_from_pb(plan: plan_pb2.Plan) -> Plan:
    """A plan from the wire; its identity and kind are settled where they are not said. Raises InvalidError."""
    kind = known(PlanKind, plan.kind or PlanKind.MARKDOWN, "kind")
    deltas = tuple(map(_delta_from_pb, plan.deltas))
    return Plan(plan.plan_id or MAIN, kind, plan.body, plan.version, plan.mode, deltas, time_from_pb(plan.update_time))

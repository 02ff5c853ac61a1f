"""WatchPlans, and WatchRun with plans.

WatchPlans needs no owner: any executor can follow the store.
Source: architecture 7, 9; rows AP03, AP43.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Final

from turnwright.executor.v1 import plan_pb2
from turnwright.executor.v1.executor_service_pb2 import (
    PLAN_EVENTS_OPERATIONS,
    PlanEvents,
    WatchRunRequest,
    WatchRunResponse,
)
from turnwright.types.v1 import heartbeat_pb2

from turnwright_core.checks import invalid
from turnwright_core.entries import Tier
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.rpc.forwarding import Forwarding, check_floor
from turnwright_executor.rpc.watches import OpenWatches
from turnwright_executor.watching.hubs import Hubs
from turnwright_executor.watching.plan_cache import PlanCache
from turnwright_executor.watching.plan_enricher import plan_enricher

_FORMS: Final = PlanEvents.values()


class PlanWatchRpcs(Forwarding):
    """WatchRun and WatchPlans."""

    watch_events: Callable[[WatchRunRequest, Any], AsyncIterator[WatchRunResponse]]
    """WatchRun without plans."""
    _hubs: Hubs
    _watches: OpenWatches
    plans: PlanCache
    _heartbeat_s: float

    def WatchRun(self, request: WatchRunRequest, context: Any) -> AsyncIterator[WatchRunResponse]:
        if not request.plans:
            return self.watch_events(request, context)
        if request.plans not in _FORMS:
            raise invalid("plans", f"plans must be LEGACY or OPERATIONS; it is {request.plans}.")
        enricher = plan_enricher(request.plans, self.plans, RunAddress(request.project, request.run))
        # The answering executor reports entries; they become plans here, at the watcher's executor.
        plain = WatchRunRequest()
        plain.CopyFrom(request)
        plain.ClearField("plans")
        return enricher.insert_plans(self.watch_events(plain, context))

    async def WatchPlans(
        self, request: plan_pb2.WatchPlansRequest, context: Any
    ) -> AsyncIterator[plan_pb2.WatchPlansResponse]:
        check_floor(Tier.CLIENT, "WatchPlans")
        address = RunAddress(request.project, request.run)
        enricher = plan_enricher(PLAN_EVENTS_OPERATIONS, self.plans, address)
        async with (
            self._hubs.hold(address) as hub,
            contextlib.aclosing(_of_plans(enricher.insert_plans(hub.watch(None, batched=True)))) as changes,
            contextlib.aclosing(self._watches.follow(changes, self._heartbeat_s)) as following,
        ):
            async for change in following:
                yield change or plan_pb2.WatchPlansResponse(heartbeat=heartbeat_pb2.Heartbeat())


async def _of_plans(events: AsyncGenerator[WatchRunResponse]) -> AsyncGenerator[plan_pb2.WatchPlansResponse]:
    """The plan events among a run's events. Heartbeats are sent by the caller."""
    part = 0
    async with contextlib.aclosing(events):
        async for event in events:
            match event.WhichOneof("event"):
                case "snapshot" if event.snapshot.plans or event.snapshot.last:
                    last = event.snapshot.last
                    shown = plan_pb2.PlansSnapshot(part=part, last=last, plans=event.snapshot.plans)
                    yield plan_pb2.WatchPlansResponse(snapshot=shown)
                    part = 0 if last else part + 1
                case "plan_updated":
                    yield plan_pb2.WatchPlansResponse(updated=event.plan_updated)
                case "plan_removed":
                    yield plan_pb2.WatchPlansResponse(removed=event.plan_removed)

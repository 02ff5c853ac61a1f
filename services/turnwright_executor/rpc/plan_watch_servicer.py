"""WatchRun, with plans for those who ask for them.

Source: architecture 7, 9; rows AP03, AP43.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from turnwright.executor.v1.executor_service_pb2 import PlanEvents, WatchRunRequest, WatchRunResponse

from turnwright_core.checks import invalid
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.rpc.forwarding import Forwarding
from turnwright_executor.watching.plan_cache import PlanCache
from turnwright_executor.watching.plan_enricher import plan_enricher

_FORMS: Final = PlanEvents.values()


class PlanWatchRpcs(Forwarding):
    """WatchRun."""

    watch_events: Callable[[WatchRunRequest, Any], AsyncIterator[WatchRunResponse]]
    """WatchRun without plans."""
    plans: PlanCache

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

"""What runs have spent, and the runs of a project as they change."""

from __future__ import annotations

from turnwright.store.v1 import control_pb2
from turnwright.types.v1 import run_pb2

from turnwright_core.entries import Tier
from turnwright_core.wire import runs as wire
from turnwright_core.wire.times import time_to_pb
from turnwright_store.app import control
from turnwright_store.app.watch_runs import RunsChange, RunsWatch, watch_runs
from turnwright_store.ports import Connection
from turnwright_store.rpc.calls import Calls, Fields, address_of, query, watch


class ControlRpcs(Calls):
    """Rpcs of control.proto."""

    @query
    def GetSpend(self, request: control_pb2.GetSpendRequest, connection: Connection) -> Fields:
        run, loop = control.get_spend(connection, address_of(request), request.loop)
        return {"run": wire.spend_to_pb(run), "loop": wire.spend_to_pb(loop)}

    def _runs_to_pb(self, change: RunsChange) -> control_pb2.WatchRunsResponse:
        return control_pb2.WatchRunsResponse(
            runs=[run_pb2.RunOverview(run=wire.run_to_pb(one.run), proposals=one.proposals) for one in change.runs],
            removed=change.removed,
            snapshot=change.snapshot,
            snapshot_last=change.snapshot_last,
            send_time=time_to_pb(self._service.clock_ms()),
        )

    @watch(_runs_to_pb, min_tier=Tier.CLIENT)
    async def WatchRuns(self, request: control_pb2.WatchRunsRequest) -> RunsWatch:
        return await watch_runs(self._database, request.project)

"""Rpcs that control runs: alias, settings, spending; fork and removal; the runs of a project."""

from __future__ import annotations

from functools import partial

from turnwright.store.v1 import control_pb2, registry_pb2
from turnwright.types.v1 import run_pb2, settings_pb2

from turnwright_core.entries import Tier
from turnwright_core.kit.auth import Caller
from turnwright_core.runs import CallStyle
from turnwright_core.wire import runs as wire
from turnwright_core.wire.codec import codec, known
from turnwright_core.wire.entries import cursor_to_pb
from turnwright_core.wire.times import time_to_pb
from turnwright_store.app import control, forks, retention
from turnwright_store.app.watch_runs import RunsChange, RunsWatch, watch_runs
from turnwright_store.domain.settings_patch import SettingsPatch
from turnwright_store.ports import Connection, Transaction
from turnwright_store.rpc.calls import Calls, Fields, address_of, alias_locks, mutation, query, run_locks, watch

_, patch_of = codec(
    SettingsPatch,
    settings_pb2.RunSettingsPatch,
    budget=(wire.budget_to_pb, wire.budget_from_pb),
    calls=(int, partial(known, CallStyle, field="calls")),
    tool_rules=(wire.tool_rules_to_pb, wire.tool_rules_from_pb),
)


class ControlRpcs(Calls):
    """Rpcs of control.proto, forks and removals."""

    @mutation(locks=alias_locks)
    def RenameRun(self, request: control_pb2.RenameRunRequest, tx: Transaction, _caller: Caller) -> Fields:
        run = control.rename_run(tx, address_of(request), request.new_run)
        return {"run": wire.run_to_pb(run)}

    @mutation(locks=run_locks)
    def ConfigureRun(self, request: control_pb2.ConfigureRunRequest, tx: Transaction, _caller: Caller) -> Fields:
        run = control.configure_run(tx, address_of(request), patch_of(request.patch))
        return {"run": wire.run_to_pb(run)}

    @mutation(locks=run_locks)
    def InjectMessage(self, request: control_pb2.InjectMessageRequest, tx: Transaction, caller: Caller) -> Fields:
        injected = control.inject_message(tx, self._rules, caller, address_of(request), request.message)
        return {"run": wire.run_to_pb(injected.run), "path": injected.path, "cursor": cursor_to_pb(injected.cursor)}

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

    @mutation(locks=alias_locks)
    def ForkRun(self, request: registry_pb2.ForkRunRequest, tx: Transaction, caller: Caller) -> Fields:
        child = forks.fork_run(tx, self._rules, caller, address_of(request), request.new_run, request.turn)
        return {"run": wire.run_to_pb(child)}

    @mutation(locks=alias_locks)
    def RemoveRun(self, request: registry_pb2.RemoveRunRequest, tx: Transaction, _caller: Caller) -> Fields:
        retention.remove_run(tx, address_of(request))
        return {}

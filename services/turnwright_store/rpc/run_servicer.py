"""Rpcs of RunService."""

from __future__ import annotations

from functools import partial

from turnwright.runs.v1 import run_service_pb2 as pb
from turnwright.runs.v1 import run_service_pb2_grpc
from turnwright.types.v1 import settings_pb2

from turnwright_core.runs import CallStyle
from turnwright_core.wire import runs as wire
from turnwright_core.wire.codec import codec, known
from turnwright_core.wire.entries import cursor_to_pb
from turnwright_kit.auth import Caller
from turnwright_store.app import control, forks, registry, retention
from turnwright_store.domain.settings_patch import SettingsPatch
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, Fields, address_of, alias_locks, mutation, run_locks

_, patch_of = codec(
    SettingsPatch,
    settings_pb2.RunSettingsPatch,
    budget=(wire.budget_to_pb, wire.budget_from_pb),
    calls=(int, partial(known, CallStyle, field="calls")),
    tool_rules=(wire.tool_rules_to_pb, wire.tool_rules_from_pb),
)


class RunServicer(Calls, run_service_pb2_grpc.RunServiceServicer):
    """Serves turnwright.runs.v1.RunService."""

    @mutation(locks=alias_locks)
    def CreateRun(self, request: pb.CreateRunRequest, tx: Transaction, _caller: Caller) -> Fields:
        run = registry.create_run(tx, request.project, request.run, wire.run_settings_from_pb(request.settings))
        return {"run": wire.run_to_pb(run)}

    @mutation(locks=alias_locks)
    def ForkRun(self, request: pb.ForkRunRequest, tx: Transaction, caller: Caller) -> Fields:
        child = forks.fork_run(tx, self._rules, caller, address_of(request), request.new_run, request.turn)
        return {"run": wire.run_to_pb(child)}

    @mutation(locks=alias_locks)
    def RenameRun(self, request: pb.RenameRunRequest, tx: Transaction, _caller: Caller) -> Fields:
        return {"run": wire.run_to_pb(control.rename_run(tx, address_of(request), request.new_run))}

    @mutation(locks=run_locks)
    def ConfigureRun(self, request: pb.ConfigureRunRequest, tx: Transaction, _caller: Caller) -> Fields:
        return {"run": wire.run_to_pb(control.configure_run(tx, address_of(request), patch_of(request.patch)))}

    @mutation(locks=alias_locks)
    def DeleteRun(self, request: pb.DeleteRunRequest, tx: Transaction, _caller: Caller) -> Fields:
        retention.remove_run(tx, address_of(request))
        return {}

    @mutation(locks=run_locks, inline=True)
    def AbortRun(self, request: pb.AbortRunRequest, tx: Transaction, caller: Caller) -> Fields:
        run, cursor = control.abort_run(tx, self._rules, caller, address_of(request))
        return {"run": wire.run_to_pb(run), "cursor": cursor_to_pb(cursor)}

    @mutation(locks=run_locks)
    def InjectMessage(self, request: pb.InjectMessageRequest, tx: Transaction, caller: Caller) -> Fields:
        injected = control.inject_message(tx, self._rules, caller, address_of(request), request.message)
        return {"run": wire.run_to_pb(injected.run), "path": injected.path, "cursor": cursor_to_pb(injected.cursor)}

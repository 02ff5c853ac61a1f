"""Rpcs of RunService."""

from __future__ import annotations

from functools import partial
from typing import Any

from sqlalchemy import Connection
from turnwright.runs.v1 import run_service_pb2 as pb
from turnwright.runs.v1 import run_service_pb2_grpc
from turnwright.runs.v1 import watch_runs_pb2 as watch_pb
from turnwright.types.v1 import run_pb2, scheme_pb2
from turnwright_values.types import Right, Run, RunOverview

from turnwright_core.wire import runs as wire
from turnwright_core.wire.codec import codec
from turnwright_core.wire.entries import cursor_to_pb, entry_to_pb
from turnwright_core.wire.times import time_to_pb
from turnwright_kit.identity.caller import Caller
from turnwright_store.app import control, forks, registry, retention
from turnwright_store.app.run_details import get_run_details
from turnwright_store.app.session_commands import patch_of
from turnwright_store.app.store_rules import newer_schemes
from turnwright_store.app.watch_runs import RunsChange, RunsWatch, list_cursor, watch_runs
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, Fields, address_of, alias_locks, mutation, query, run_locks, watch

_overview_to_pb = codec(RunOverview, run_pb2.RunOverview)[0]


class RunServicer(Calls, run_service_pb2_grpc.RunServiceServicer):
    """Serves turnwright.runs.v1.RunService."""

    async def GetRun(self, request: pb.GetRunRequest, _context: Any) -> pb.GetRunResponse:
        if not request.run_only:
            return await self._database.read(partial(self._details, request))
        read = partial(registry.get_run, project=request.project, alias=request.run)
        run, private_to = await self._database.read(read)
        schemes = self._schemes_for(request)
        return pb.GetRunResponse(run=wire.run_to_pb(run), schemes=schemes, private_to=private_to)

    def _details(self, request: pb.GetRunRequest, connection: Connection) -> pb.GetRunResponse:
        found = get_run_details(connection, self._rules, address_of(request), request.turns_max, request.history_max)
        result = found.latest.result if found.latest else None
        return pb.GetRunResponse(
            run=wire.run_to_pb(found.run),
            private_to=found.private_to,
            loops=map(wire.loop_to_pb, found.loops),
            turns=map(wire.turn_to_pb, found.turns),
            spent=wire.spend_to_pb(found.spent),
            loop_spent=wire.spend_to_pb(found.loop_spent),
            history=map(entry_to_pb, found.history),
            unknowns=map(entry_to_pb, found.unknowns),
            telemetry=wire.turn_result_to_pb(result) if result else None,
            proposals=found.proposals,
            schemes=self._schemes_for(request),
        )

    def _schemes_for(self, request: pb.GetRunRequest) -> scheme_pb2.SchemeRegistry | None:
        return newer_schemes(self._rules, request.schemes_version)

    @query
    def ListRuns(self, request: pb.ListRunsRequest, connection: Connection) -> Fields:
        page = registry.list_runs(connection, request.project, request.page_size, request.page_token)
        cursor = "" if request.page_token else list_cursor(connection, page, self._rules.incarnation)
        runs = registry.with_origins(connection, page.rows)
        return {"runs": map(wire.run_to_pb, runs), "next_page_token": page.next_token, "cursor": cursor}

    def _change_to_pb(self, change: RunsChange) -> watch_pb.WatchRunsResponse:
        message = watch_pb.WatchRunsResponse(time=time_to_pb(self._service.clock_ms()), cursor=change.cursor)
        if change.part is not None:
            runs = map(_overview_to_pb, change.snapshot)
            message.snapshot.MergeFrom(watch_pb.RunsSnapshot(part=change.part, last=change.is_last, runs=runs))
        elif change.created or change.updated or change.deleted:
            created, updated = map(_overview_to_pb, change.created), map(_overview_to_pb, change.updated)
            message.changed.MergeFrom(watch_pb.RunsChanged(created=created, updated=updated, deleted=change.deleted))
        else:
            message.heartbeat.SetInParent()
        return message

    @watch(_change_to_pb)
    async def WatchRuns(self, request: watch_pb.WatchRunsRequest) -> RunsWatch:
        return await watch_runs(self._database, request.project, self._rules.incarnation, request.after)

    @mutation(locks=alias_locks)
    def CreateRun(self, request: pb.CreateRunRequest, tx: Transaction, caller: Caller) -> Fields:
        settings = wire.run_settings_from_pb(request.settings)
        if settings.yolo:
            self._rules.check_right(caller, Right.COMMAND, request.project, "yolo")
        return {"run": _show(tx, registry.create_run(tx, caller, request.project, request.run, settings))}

    @mutation(locks=alias_locks)
    def ForkRun(self, request: pb.ForkRunRequest, tx: Transaction, caller: Caller) -> Fields:
        tx.detail["new_run"] = request.new_run
        child = forks.fork_run(tx, self._rules, caller, address_of(request), request.new_run, request.turn)
        return {"run": _show(tx, child)}

    @mutation(locks=alias_locks)
    def RenameRun(self, request: pb.RenameRunRequest, tx: Transaction, _caller: Caller) -> Fields:
        tx.detail["new_run"] = request.new_run
        return {"run": _show(tx, control.rename_run(tx, address_of(request), request.new_run))}

    @mutation(locks=run_locks)
    def ConfigureRun(self, request: pb.ConfigureRunRequest, tx: Transaction, caller: Caller) -> Fields:
        patch = patch_of(request.patch)
        return {"run": _show(tx, control.configure_run(tx, self._rules, caller, address_of(request), patch))}

    @mutation(locks=alias_locks)
    def DeleteRun(self, request: pb.DeleteRunRequest, tx: Transaction, caller: Caller) -> Fields:
        retention.remove_run(tx, self._rules, caller, address_of(request))
        return {}

    @mutation(locks=run_locks)
    def AbortRun(self, request: pb.AbortRunRequest, tx: Transaction, caller: Caller) -> Fields:
        run, cursor = control.abort_run(tx, self._rules, address_of(request), request.loop)
        return {"run": _show(tx, run), "cursor": cursor_to_pb(cursor)}

    @mutation(locks=run_locks)
    def InjectMessage(self, request: pb.InjectMessageRequest, tx: Transaction, caller: Caller) -> Fields:
        injected = control.inject_message(tx, self._rules, caller, address_of(request), request.message)
        return {"run": _show(tx, injected.run), "path": injected.path, "cursor": cursor_to_pb(injected.cursor)}


def _show(tx: Transaction, run: Run) -> run_pb2.Run:
    """A run that was written, as readers see it."""
    return wire.run_to_pb(registry.get_run(tx.connection, run.project, run.run)[0])

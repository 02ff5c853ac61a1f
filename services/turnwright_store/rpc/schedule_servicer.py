"""Rpcs of schedule.proto."""

from __future__ import annotations

from turnwright.store.v1 import schedule_pb2 as pb
from turnwright.types.v1 import schedule_pb2

from turnwright_core.kit.auth import Caller
from turnwright_core.wire.codec import codec
from turnwright_store.app import schedules
from turnwright_store.domain.schedules import Schedule
from turnwright_store.ports import Connection, Transaction
from turnwright_store.rpc.calls import Calls, address_of, mutation, query, run_locks

_to_pb, _from_pb = codec(Schedule, schedule_pb2.Schedule)


class ScheduleRpcs(Calls):
    """Schedules of runs."""

    @mutation(locks=run_locks)
    def SetSchedule(self, request: pb.SetScheduleRequest, tx: Transaction, _caller: Caller) -> pb.SetScheduleResponse:
        done = schedules.set_schedule(tx, address_of(request), _from_pb(request.schedule))
        return pb.SetScheduleResponse(schedule=_to_pb(done))

    @mutation(locks=run_locks)
    def RemoveSchedule(
        self, request: pb.RemoveScheduleRequest, tx: Transaction, _caller: Caller
    ) -> pb.RemoveScheduleResponse:
        schedules.remove_schedule(tx, address_of(request), request.schedule_id)
        return pb.RemoveScheduleResponse()

    @query
    def ListSchedules(self, request: pb.ListSchedulesRequest, connection: Connection) -> pb.ListSchedulesResponse:
        found = schedules.list_schedules(connection, address_of(request))
        return pb.ListSchedulesResponse(schedules=map(_to_pb, found))

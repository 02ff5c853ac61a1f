"""Rpcs of ScheduleService."""

from __future__ import annotations

from sqlalchemy import Connection
from turnwright.schedules.v1 import schedule_service_pb2 as pb
from turnwright.schedules.v1 import schedule_service_pb2_grpc
from turnwright.types.v1 import schedule_pb2
from turnwright_values.types import Schedule

from turnwright_core.wire.codec import codec
from turnwright_kit.identity.caller import Caller
from turnwright_store.app import schedules
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, Fields, address_of, mutation, query, run_locks

_schedule_to_pb, _schedule_from_pb = codec(Schedule, schedule_pb2.Schedule)


class ScheduleServicer(Calls, schedule_service_pb2_grpc.ScheduleServiceServicer):
    """Serves turnwright.schedules.v1.ScheduleService."""

    @mutation(locks=run_locks)
    def SetSchedule(self, request: pb.SetScheduleRequest, tx: Transaction, caller: Caller) -> Fields:
        wanted = _schedule_from_pb(request.schedule)
        done = schedules.set_schedule(tx, self._rules, caller, address_of(request), wanted)
        return {"schedule": _schedule_to_pb(done)}

    @mutation(locks=run_locks)
    def DeleteSchedule(self, request: pb.DeleteScheduleRequest, tx: Transaction, _caller: Caller) -> Fields:
        schedules.delete_schedule(tx, address_of(request), request.schedule_id)
        return {}

    @mutation(locks=run_locks)
    def PauseSchedule(self, request: pb.PauseScheduleRequest, tx: Transaction, _caller: Caller) -> Fields:
        done = schedules.pause_schedule(tx, address_of(request), request.schedule_id)
        return {"schedule": _schedule_to_pb(done)}

    @mutation(locks=run_locks)
    def ResumeSchedule(self, request: pb.ResumeScheduleRequest, tx: Transaction, _caller: Caller) -> Fields:
        done = schedules.resume_schedule(tx, address_of(request), request.schedule_id)
        return {"schedule": _schedule_to_pb(done)}

    @query
    def ListSchedules(self, request: pb.ListSchedulesRequest, connection: Connection) -> Fields:
        found = schedules.list_schedules(connection, address_of(request))
        return {"schedules": map(_schedule_to_pb, found)}

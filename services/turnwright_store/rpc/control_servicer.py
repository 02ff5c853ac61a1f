"""What runs have spent."""

from __future__ import annotations

from sqlalchemy import Connection
from turnwright.store.v1 import control_pb2

from turnwright_core.wire import runs as wire
from turnwright_store.app import control
from turnwright_store.rpc.calls import Calls, Fields, query
from turnwright_store.sql.runs import get_run


class ControlRpcs(Calls):
    """Rpcs of control.proto."""

    @query
    def GetSpend(self, request: control_pb2.GetSpendRequest, connection: Connection) -> Fields:
        run, loop = control.get_spend(connection, get_run(connection, request.project, request.run), request.loop)
        return {"run": wire.spend_to_pb(run), "loop": wire.spend_to_pb(loop)}

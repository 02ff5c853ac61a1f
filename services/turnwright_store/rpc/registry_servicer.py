"""Runs, one and lists."""

from __future__ import annotations

from turnwright.store.v1 import registry_pb2

from turnwright_core.wire import runs as wire
from turnwright_store.app import registry as app
from turnwright_store.ports import Connection
from turnwright_store.rpc.calls import Calls, Fields, inline_query, query


class RegistryRpcs(Calls):
    """Rpcs of registry.proto."""

    @inline_query
    def GetRun(self, request: registry_pb2.GetRunRequest, connection: Connection) -> Fields:
        run = app.get_run(connection, request.project, request.run)
        schemes = self._service.newer_schemes(self._rules, request.schemes_version)
        return {"run": wire.run_to_pb(run), "schemes": schemes}

    @query
    def ListRuns(self, request: registry_pb2.ListRunsRequest, connection: Connection) -> Fields:
        found, token = app.list_runs(connection, request.project, request.page_size, request.page_token)
        return {"runs": map(wire.run_to_pb, found), "next_page_token": token}

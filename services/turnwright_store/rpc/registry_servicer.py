"""Projects and lists of runs."""

from __future__ import annotations

from turnwright.store.v1 import registry_pb2

from turnwright_core.kit.auth import Caller
from turnwright_core.runs import Assembly
from turnwright_core.wire import runs as wire
from turnwright_core.wire.codec import known
from turnwright_store.app import registry as app
from turnwright_store.ports import Connection, Transaction
from turnwright_store.rpc.calls import Calls, Fields, inline_query, mutation, query, registry_locks


class RegistryRpcs(Calls):
    """Rpcs of registry.proto."""

    @mutation(locks=registry_locks, deployment=True)
    def InitProject(self, request: registry_pb2.InitProjectRequest, tx: Transaction, _caller: Caller) -> Fields:
        config_path = request.config_path if request.HasField("config_path") else None
        assembly = known(Assembly, request.assembly, "assembly") if request.HasField("assembly") else None
        clients = request.clients if request.HasField("clients") else None
        project = app.init_project(tx, request.root, request.workspace_id, request.name, config_path, assembly, clients)
        return {"project": wire.project_to_pb(project)}

    @query
    def ListProjects(self, request: registry_pb2.ListProjectsRequest, connection: Connection) -> Fields:
        if request.name or request.workspace_id:
            one = app.find_projects(connection, request.name, request.workspace_id)
            return {"projects": map(wire.project_to_pb, one)}
        found, token = app.list_projects(connection, request.page_size, request.page_token)
        return {"projects": map(wire.project_to_pb, found), "next_page_token": token}

    @inline_query
    def GetRun(self, request: registry_pb2.GetRunRequest, connection: Connection) -> Fields:
        run = app.get_run(connection, request.project, request.run)
        schemes = self._service.newer_schemes(self._rules, request.schemes_version)
        return {"run": wire.run_to_pb(run), "schemes": schemes}

    @query
    def ListRuns(self, request: registry_pb2.ListRunsRequest, connection: Connection) -> Fields:
        found, token = app.list_runs(connection, request.project, request.page_size, request.page_token)
        return {"runs": map(wire.run_to_pb, found), "next_page_token": token}

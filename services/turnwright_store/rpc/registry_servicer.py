"""Projects, models, schemes and lists of runs."""

from __future__ import annotations

from typing import Any

from turnwright.store.v1 import ledger_pb2, queue_pb2, registry_pb2

from turnwright_core.entries import Tier
from turnwright_core.kit.auth import Caller
from turnwright_core.runs import Assembly
from turnwright_core.wire import runs as wire
from turnwright_core.wire.codec import known
from turnwright_core.wire.schemes import scheme_to_pb
from turnwright_store.app import registry as app
from turnwright_store.domain.locks import REGISTRY_LOCK
from turnwright_store.ports import Connection, Transaction
from turnwright_store.rpc.calls import Calls, alias_locks, inline_query, mutation, query
from turnwright_store.sql.registry import list_schemes


def _registry_locks(_request: Any) -> set[str]:
    return {REGISTRY_LOCK}


class RegistryRpcs(Calls):
    """Rpcs of registry.proto, and the lists of ledger.proto."""

    @mutation(locks=_registry_locks, deployment=True)
    def InitProject(
        self, request: registry_pb2.InitProjectRequest, tx: Transaction, _caller: Caller
    ) -> registry_pb2.InitProjectResponse:
        config_path = request.config_path if request.HasField("config_path") else None
        assembly = known(Assembly, request.assembly, "assembly") if request.HasField("assembly") else None
        project = app.init_project(tx, request.root, request.workspace_id, request.name, config_path, assembly)
        return registry_pb2.InitProjectResponse(project=wire.project_to_pb(project))

    @query
    def ListProjects(
        self, request: registry_pb2.ListProjectsRequest, connection: Connection
    ) -> registry_pb2.ListProjectsResponse:
        found, token = app.list_projects(connection, request.page_size, request.page_token)
        return registry_pb2.ListProjectsResponse(projects=map(wire.project_to_pb, found), next_page_token=token)

    @mutation(locks=_registry_locks, min_tier=Tier.MODEL, deployment=True)
    def PutModels(
        self, request: registry_pb2.PutModelsRequest, tx: Transaction, _caller: Caller
    ) -> registry_pb2.PutModelsResponse:
        stored = app.put_models(tx, list(map(wire.model_from_pb, request.models)))
        return registry_pb2.PutModelsResponse(models=map(wire.model_to_pb, stored))

    @query
    def ListModels(
        self, request: registry_pb2.ListModelsRequest, connection: Connection
    ) -> registry_pb2.ListModelsResponse:
        found, token = app.list_models(connection, request.page_size, request.page_token)
        return registry_pb2.ListModelsResponse(models=map(wire.model_to_pb, found), next_page_token=token)

    @mutation(locks=_registry_locks, min_tier=Tier.MODEL, deployment=True)
    def DeleteModel(
        self, request: registry_pb2.DeleteModelRequest, tx: Transaction, _caller: Caller
    ) -> registry_pb2.DeleteModelResponse:
        app.delete_model(tx, request.alias)
        return registry_pb2.DeleteModelResponse()

    @query
    def ListSchemes(
        self, _request: registry_pb2.ListSchemesRequest, connection: Connection
    ) -> registry_pb2.ListSchemesResponse:
        return registry_pb2.ListSchemesResponse(schemes=map(scheme_to_pb, list_schemes(connection)))

    @mutation(locks=alias_locks)
    def CreateRun(
        self, request: registry_pb2.CreateRunRequest, tx: Transaction, _caller: Caller
    ) -> registry_pb2.CreateRunResponse:
        settings = wire.run_settings_from_pb(request.settings)
        run = app.create_run(tx, request.project, request.run, settings)
        return registry_pb2.CreateRunResponse(run=wire.run_to_pb(run))

    @inline_query
    def GetRun(self, request: registry_pb2.GetRunRequest, connection: Connection) -> registry_pb2.GetRunResponse:
        run = app.get_run(connection, request.project, request.run)
        schemes = self._service.newer_schemes(self._rules, request.schemes_version)
        return registry_pb2.GetRunResponse(run=wire.run_to_pb(run), schemes=schemes)

    @query
    def ListRuns(self, request: registry_pb2.ListRunsRequest, connection: Connection) -> registry_pb2.ListRunsResponse:
        found, token = app.list_runs(connection, request.project, request.page_size, request.page_token)
        return registry_pb2.ListRunsResponse(runs=map(wire.run_to_pb, found), next_page_token=token)

    @query
    def ListLoops(self, request: queue_pb2.ListLoopsRequest, connection: Connection) -> queue_pb2.ListLoopsResponse:
        found, token = app.list_loops(connection, request.project, request.run, request.page_size, request.page_token)
        return queue_pb2.ListLoopsResponse(loops=map(wire.loop_to_pb, found), next_page_token=token)

    @query
    def ListTurns(self, request: ledger_pb2.ListTurnsRequest, connection: Connection) -> ledger_pb2.ListTurnsResponse:
        if request.numbers:
            named = app.turns_by_number(connection, request.project, request.run, request.numbers)
            return ledger_pb2.ListTurnsResponse(turns=map(wire.turn_to_pb, named))
        found, token = app.list_turns(connection, request.project, request.run, request.page_size, request.page_token)
        return ledger_pb2.ListTurnsResponse(turns=map(wire.turn_to_pb, found), next_page_token=token)

"""Projects, models, schemes and lists of runs."""

from __future__ import annotations

from functools import partial
from typing import Any

from turnwright.store.v1 import ledger_pb2, queue_pb2, registry_pb2

from turnwright_core.kit.auth import Caller, check_deployment
from turnwright_core.wire import runs as wire
from turnwright_core.wire.schemes import scheme_to_pb
from turnwright_store.app import registry as app
from turnwright_store.domain.locks import REGISTRY_LOCK, project_lock, run_lock
from turnwright_store.ports import Durability, Transaction
from turnwright_store.rpc.calls import Calls
from turnwright_store.sql.registry import list_schemes


class RegistryRpcs(Calls):
    """Rpcs of registry.proto, and the lists of ledger.proto."""

    async def InitProject(
        self, request: registry_pb2.InitProjectRequest, _context: Any
    ) -> registry_pb2.InitProjectResponse:
        """See StoreService."""
        check_deployment("InitProject")
        config_path = request.config_path if request.HasField("config_path") else None

        def work(tx: Transaction, _caller: Caller) -> registry_pb2.InitProjectResponse:
            project = app.init_project(tx, request.root, request.workspace_id, request.name, config_path)
            return registry_pb2.InitProjectResponse(project=wire.project_to_pb(project))

        return await self._once(request, registry_pb2.InitProjectResponse, work, locks={REGISTRY_LOCK})

    async def ListProjects(
        self, request: registry_pb2.ListProjectsRequest, _context: Any
    ) -> registry_pb2.ListProjectsResponse:
        """See StoreService."""
        found, token = await self._database.read(
            partial(app.list_projects, size=request.page_size, token=request.page_token)
        )
        return registry_pb2.ListProjectsResponse(projects=map(wire.project_to_pb, found), next_page_token=token)

    async def PutModels(self, request: registry_pb2.PutModelsRequest, _context: Any) -> registry_pb2.PutModelsResponse:
        """See StoreService."""
        check_deployment("PutModels")
        models = [wire.model_from_pb(model) for model in request.models]
        stored = await self._database.write(partial(app.put_models, models=models), Durability.FULL, {REGISTRY_LOCK})
        return registry_pb2.PutModelsResponse(models=map(wire.model_to_pb, stored))

    async def ListModels(
        self, request: registry_pb2.ListModelsRequest, _context: Any
    ) -> registry_pb2.ListModelsResponse:
        """See StoreService."""
        found, token = await self._database.read(
            partial(app.list_models, size=request.page_size, token=request.page_token)
        )
        return registry_pb2.ListModelsResponse(models=map(wire.model_to_pb, found), next_page_token=token)

    async def DeleteModel(
        self, request: registry_pb2.DeleteModelRequest, _context: Any
    ) -> registry_pb2.DeleteModelResponse:
        """See StoreService."""
        check_deployment("DeleteModel")
        await self._database.write(partial(app.delete_model, alias=request.alias), Durability.FULL, {REGISTRY_LOCK})
        return registry_pb2.DeleteModelResponse()

    async def ListSchemes(
        self, _request: registry_pb2.ListSchemesRequest, _context: Any
    ) -> registry_pb2.ListSchemesResponse:
        """See StoreService."""
        return registry_pb2.ListSchemesResponse(schemes=map(scheme_to_pb, await self._database.read(list_schemes)))

    async def CreateRun(self, request: registry_pb2.CreateRunRequest, _context: Any) -> registry_pb2.CreateRunResponse:
        """See StoreService."""
        settings = wire.run_settings_from_pb(request.settings)
        return await self._once(
            request,
            registry_pb2.CreateRunResponse,
            lambda tx, _: registry_pb2.CreateRunResponse(
                run=wire.run_to_pb(app.create_run(tx, request.project, request.run, settings))
            ),
            locks={project_lock(request.project), run_lock(request.project, request.run)},
        )

    async def GetRun(self, request: registry_pb2.GetRunRequest, _context: Any) -> registry_pb2.GetRunResponse:
        """See StoreService."""
        query = partial(app.get_run, project=request.project, alias=request.run)
        run = await self._database.read(query, brief=True)
        schemes = self._service.news(self._basis, request.schemes_version)
        return registry_pb2.GetRunResponse(run=wire.run_to_pb(run), schemes=schemes)

    async def ListRuns(self, request: registry_pb2.ListRunsRequest, _context: Any) -> registry_pb2.ListRunsResponse:
        """See StoreService."""
        found, token = await self._database.read(
            partial(app.list_runs, project=request.project, size=request.page_size, token=request.page_token)
        )
        return registry_pb2.ListRunsResponse(runs=map(wire.run_to_pb, found), next_page_token=token)

    async def ListLoops(self, request: queue_pb2.ListLoopsRequest, _context: Any) -> queue_pb2.ListLoopsResponse:
        """See StoreService."""
        found, token = await self._database.read(
            partial(
                app.list_loops,
                project=request.project,
                alias=request.run,
                size=request.page_size,
                token=request.page_token,
            )
        )
        return queue_pb2.ListLoopsResponse(loops=map(wire.loop_to_pb, found), next_page_token=token)

    async def ListTurns(self, request: ledger_pb2.ListTurnsRequest, _context: Any) -> ledger_pb2.ListTurnsResponse:
        """See StoreService."""
        found, token = await self._database.read(
            partial(
                app.list_turns,
                project=request.project,
                alias=request.run,
                size=request.page_size,
                token=request.page_token,
            )
        )
        return ledger_pb2.ListTurnsResponse(turns=map(wire.turn_to_pb, found), next_page_token=token)

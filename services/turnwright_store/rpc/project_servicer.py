"""Rpcs of ProjectService."""

from __future__ import annotations

from functools import partial

from sqlalchemy import Connection
from turnwright.projects.v1 import project_service_pb2 as pb
from turnwright.projects.v1 import project_service_pb2_grpc
from turnwright_values.types import Assembly, Right

from turnwright_core.wire import runs as wire
from turnwright_core.wire.codec import known
from turnwright_core.wire.runs import constraint_from_pb, constraint_to_pb
from turnwright_kit.identity.caller import Caller, current_caller
from turnwright_kit.identity.policy import bit_of, check_service
from turnwright_store.app import registry, store_rules
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, Fields, mutation, project_locks, query, registry_locks


class ProjectServicer(Calls, project_service_pb2_grpc.ProjectServiceServicer):
    """Serves turnwright.projects.v1.ProjectService."""

    @mutation(locks=registry_locks)
    def InitProject(self, request: pb.InitProjectRequest, tx: Transaction, caller: Caller) -> Fields:
        if not caller.by:
            # Which directory somebody may register is for an executor to say.
            check_service(caller, "To register a directory at a store")
        owner = "" if caller.is_trusted else caller.name
        changes = {name: getattr(request, name) for name in ("config_path",) if request.HasField(name)}
        if request.HasField("assembly"):
            changes["assembly"] = known(Assembly, request.assembly, "assembly")
        policy, uses_files = self._service.policy, None
        if not policy.rights_in_deployment(caller) & bit_of(Right.ADMIN) and not caller.is_trusted:
            uses_files = partial(policy.has, caller, Right.FILES)
        project = registry.init_project(
            tx, request.root, request.workspace_id, request.name, owner, uses_files, **changes
        )
        return {"project": wire.project_to_pb(project)}

    @query
    def GetProject(self, request: pb.GetProjectRequest, connection: Connection) -> Fields:
        project = registry.get_project(connection, request.project, request.workspace_id)
        if not self._service.policy.has(current_caller(), Right.READ, project.name):
            raise registry.no_workspace(request.workspace_id)
        return {"project": wire.project_to_pb(project)}

    @query
    def ListProjects(self, request: pb.ListProjectsRequest, connection: Connection) -> Fields:
        names = self._service.policy.projects_with(current_caller(), Right.READ)
        found, token = registry.list_projects(connection, names, request.page_size, request.page_token)
        return {"projects": map(wire.project_to_pb, found), "next_page_token": token}

    @mutation(locks=project_locks)
    def SetFileConstraints(self, request: pb.SetFileConstraintsRequest, tx: Transaction, _caller: Caller) -> Fields:
        wanted = list(map(constraint_from_pb, request.constraints))
        stored = store_rules.set_constraints(tx, request.project, wanted, request.remove_patterns)
        return {"constraints": map(constraint_to_pb, stored)}

    @query
    def ListFileConstraints(self, request: pb.ListFileConstraintsRequest, connection: Connection) -> Fields:
        found, token = store_rules.list_constraints(connection, request.project, request.page_size, request.page_token)
        return {"constraints": map(constraint_to_pb, found), "next_page_token": token}

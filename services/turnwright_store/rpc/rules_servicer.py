"""Rpcs that constrain files."""

from __future__ import annotations

from turnwright.store.v1 import registry_pb2

from turnwright_core.constraints import FileConstraint
from turnwright_core.kit.auth import Caller
from turnwright_core.wire.claims import constraint_to_pb
from turnwright_store.app import store_rules
from turnwright_store.ports import Connection, Transaction
from turnwright_store.rpc.calls import Calls, Fields, inline_query, mutation, project_locks


class RulesRpcs(Calls):
    """Rpcs that constrain files."""

    @mutation(locks=project_locks)
    def SetFileConstraints(
        self, request: registry_pb2.SetFileConstraintsRequest, tx: Transaction, _caller: Caller
    ) -> Fields:
        store_rules.remove_constraints(tx, request.project, request.remove_patterns)
        wanted = [FileConstraint(one.pattern, one.kind) for one in request.constraints]
        stored = store_rules.set_constraints(tx, request.project, wanted)
        return {"constraints": map(constraint_to_pb, stored)}

    @mutation(locks=project_locks)
    def RemoveFileConstraints(
        self, request: registry_pb2.RemoveFileConstraintsRequest, tx: Transaction, _caller: Caller
    ) -> Fields:
        store_rules.remove_constraints(tx, request.project, request.patterns)
        return {}

    @inline_query
    def ListFileConstraints(self, request: registry_pb2.ListFileConstraintsRequest, connection: Connection) -> Fields:
        found, token = store_rules.list_constraints(connection, request.project, request.page_size, request.page_token)
        constraints = map(constraint_to_pb, found)
        return {"constraints": constraints, "next_page_token": token}

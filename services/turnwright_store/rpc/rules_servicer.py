"""Rpcs that register schemes and constrain files."""

from __future__ import annotations

from functools import partial
from typing import Any

from turnwright.store.v1 import registry_pb2

from turnwright_core.constraints import FileConstraint
from turnwright_core.kit.auth import Caller, current_caller
from turnwright_core.wire.claims import constraint_to_pb
from turnwright_core.wire.schemes import scheme_from_pb, scheme_to_pb
from turnwright_store.app import store_rules
from turnwright_store.domain.locks import GLOBAL_LOCK, REGISTRY_LOCK
from turnwright_store.ports import Connection, Durability, Transaction
from turnwright_store.rpc.calls import Calls, Fields, inline_query, mutation, project_locks


class RulesRpcs(Calls):
    """Rpcs that register schemes and constrain files."""

    async def PutScheme(self, request: registry_pb2.PutSchemeRequest, _context: Any) -> registry_pb2.PutSchemeResponse:
        scheme = scheme_from_pb(request.scheme)
        work = partial(store_rules.put_scheme, rules=self._rules, caller=current_caller(), wanted=scheme)
        schemes = await self._database.write(work, Durability.FULL, {REGISTRY_LOCK, GLOBAL_LOCK})
        self._service.update(schemes)
        return registry_pb2.PutSchemeResponse(scheme=scheme_to_pb(scheme))

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

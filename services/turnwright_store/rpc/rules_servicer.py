"""Rpcs that register schemes and constrain files."""

from __future__ import annotations

from functools import partial
from typing import Any

from turnwright.store.v1 import registry_pb2

from turnwright_core.constraints import FileConstraint
from turnwright_core.kit.auth import current_caller
from turnwright_core.wire.schemes import scheme_from_pb, scheme_to_pb
from turnwright_core.wire.times import time_to_pb
from turnwright_store.app import rules
from turnwright_store.domain.locks import GLOBAL_LOCK, REGISTRY_LOCK, project_lock
from turnwright_store.ports import Durability, Transaction
from turnwright_store.rpc.calls import Calls


def _constraint_to_pb(constraint: FileConstraint) -> registry_pb2.FileConstraint:
    return registry_pb2.FileConstraint(
        pattern=constraint.pattern, kind=constraint.kind, create_time=time_to_pb(constraint.create_ms)
    )


class RulesRpcs(Calls):
    """Rpcs that register schemes and constrain files."""

    async def PutScheme(self, request: registry_pb2.PutSchemeRequest, _context: Any) -> registry_pb2.PutSchemeResponse:
        """See StoreService."""
        scheme = scheme_from_pb(request.scheme)
        work = partial(rules.put_scheme, basis=self._basis, caller=current_caller(), wanted=scheme)
        schemes = await self._database.write(work, Durability.FULL, {REGISTRY_LOCK, GLOBAL_LOCK})
        self._service.learn(schemes)
        return registry_pb2.PutSchemeResponse(scheme=scheme_to_pb(scheme))

    async def SetFileConstraints(
        self, request: registry_pb2.SetFileConstraintsRequest, _context: Any
    ) -> registry_pb2.SetFileConstraintsResponse:
        """See StoreService."""
        wanted = [FileConstraint(one.pattern, one.kind) for one in request.constraints]

        def work(tx: Transaction, _caller: Any) -> registry_pb2.SetFileConstraintsResponse:
            rules.remove_constraints(tx, request.project, request.remove_patterns)
            stored = rules.set_constraints(tx, request.project, wanted)
            return registry_pb2.SetFileConstraintsResponse(constraints=map(_constraint_to_pb, stored))

        return await self._once(
            request, registry_pb2.SetFileConstraintsResponse, work, locks={project_lock(request.project)}
        )

    async def RemoveFileConstraints(
        self, request: registry_pb2.RemoveFileConstraintsRequest, _context: Any
    ) -> registry_pb2.RemoveFileConstraintsResponse:
        """See StoreService."""

        def work(tx: Transaction, _caller: Any) -> registry_pb2.RemoveFileConstraintsResponse:
            rules.remove_constraints(tx, request.project, request.patterns)
            return registry_pb2.RemoveFileConstraintsResponse()

        return await self._once(
            request, registry_pb2.RemoveFileConstraintsResponse, work, locks={project_lock(request.project)}
        )

    async def ListFileConstraints(
        self, request: registry_pb2.ListFileConstraintsRequest, _context: Any
    ) -> registry_pb2.ListFileConstraintsResponse:
        """See StoreService."""
        found, token = await self._database.read(
            partial(rules.list_constraints, project=request.project, size=request.page_size, token=request.page_token)
        )
        return registry_pb2.ListFileConstraintsResponse(
            constraints=map(_constraint_to_pb, found), next_page_token=token
        )

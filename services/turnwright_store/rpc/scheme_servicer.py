"""Rpcs of SchemeService."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection
from turnwright.schemes.v1 import scheme_service_pb2 as pb
from turnwright.schemes.v1 import scheme_service_pb2_grpc
from turnwright_values.store import Durability
from turnwright_values.types import Right

from turnwright_core.schemes import Scheme
from turnwright_core.wire.schemes import scheme_from_pb, scheme_to_pb
from turnwright_kit.identity.caller import Caller, current_caller
from turnwright_store.app import store_rules
from turnwright_store.domain.locks import GLOBAL_LOCK, REGISTRY_LOCK
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, Fields, query
from turnwright_store.sql.registry import list_schemes


class SchemeServicer(Calls, scheme_service_pb2_grpc.SchemeServiceServicer):
    """Serves turnwright.schemes.v1.SchemeService."""

    async def SetScheme(self, request: pb.SetSchemeRequest, _context: Any) -> pb.SetSchemeResponse:
        caller = current_caller()
        if not caller.is_trusted:
            self._service.policy.check_deployment(caller, Right.ADMIN, "SetScheme")
        scheme = scheme_from_pb(request.scheme)

        def work(tx: Transaction, _caller: Caller) -> list[Scheme]:
            return store_rules.set_scheme(tx, self._rules, scheme)

        schemes = await self._audited(request, caller, work, Durability.FULL, {REGISTRY_LOCK, GLOBAL_LOCK})
        self._service.update(schemes)
        return pb.SetSchemeResponse(scheme=scheme_to_pb(scheme))

    @query
    def ListSchemes(self, _request: pb.ListSchemesRequest, connection: Connection) -> Fields:
        return {"schemes": map(scheme_to_pb, list_schemes(connection))}

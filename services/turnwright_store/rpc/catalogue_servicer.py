"""Rpcs of CatalogueService."""

from __future__ import annotations

from sqlalchemy import Connection
from turnwright.catalogues.v1 import catalogue_service_pb2 as pb
from turnwright.catalogues.v1 import catalogue_service_pb2_grpc

from turnwright_kit.identity.caller import Caller, current_caller
from turnwright_store.app import tool_servers
from turnwright_store.domain.locks import TOOL_SERVERS_LOCK
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, Fields, mutation, query


def _locks(_request: object) -> set[str]:
    return {TOOL_SERVERS_LOCK}


class CatalogueServicer(Calls, catalogue_service_pb2_grpc.CatalogueServiceServicer):
    """Serves turnwright.catalogues.v1.CatalogueService."""

    @mutation(locks=_locks)
    def AddToolServer(self, request: pb.AddToolServerRequest, tx: Transaction, caller: Caller) -> Fields:
        return {"server": tool_servers.add_server(tx, caller, request.project, request.server)}

    @mutation(locks=_locks)
    def RemoveToolServer(self, request: pb.RemoveToolServerRequest, tx: Transaction, _caller: Caller) -> Fields:
        tool_servers.remove_server(tx, request.project, request.name)
        return {}

    @query
    def ListToolServers(self, request: pb.ListToolServersRequest, connection: Connection) -> Fields:
        shared = tool_servers.list_servers(connection, "") if request.project else []
        for server in () if current_caller().is_trusted else shared:
            server.headers.clear()
            server.secret_headers.clear()
        return {"servers": tool_servers.list_servers(connection, request.project), "shared": shared}

"""Rpcs of ModelService."""

from __future__ import annotations

from sqlalchemy import Connection
from turnwright.models.v1 import model_service_pb2 as pb
from turnwright.models.v1 import model_service_pb2_grpc

from turnwright_core.wire.runs import model_from_pb, model_to_pb
from turnwright_kit.identity.caller import Caller
from turnwright_store.app import registry
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, Fields, mutation, query, registry_locks


class ModelServicer(Calls, model_service_pb2_grpc.ModelServiceServicer):
    """Serves turnwright.models.v1.ModelService."""

    @mutation(locks=registry_locks)
    def SetModel(self, request: pb.SetModelRequest, tx: Transaction, _caller: Caller) -> Fields:
        return {"model": model_to_pb(registry.set_model(tx, model_from_pb(request.model)))}

    @mutation(locks=registry_locks)
    def DeleteModel(self, request: pb.DeleteModelRequest, tx: Transaction, _caller: Caller) -> Fields:
        registry.delete_model(tx, request.alias)
        return {}

    @query
    def ListModels(self, request: pb.ListModelsRequest, connection: Connection) -> Fields:
        found, token = registry.list_models(connection, request.page_size, request.page_token)
        return {"models": map(model_to_pb, found), "next_page_token": token}

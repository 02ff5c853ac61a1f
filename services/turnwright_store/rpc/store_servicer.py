"""The servicer: all rpcs of StoreService."""

from __future__ import annotations

from turnwright.store.v1 import store_service_pb2_grpc

from turnwright_store.rpc.ledger_servicer import LedgerRpcs
from turnwright_store.rpc.read_servicer import ReadRpcs
from turnwright_store.rpc.registry_servicer import RegistryRpcs


class StoreServicer(RegistryRpcs, LedgerRpcs, ReadRpcs, store_service_pb2_grpc.StoreServiceServicer):
    """Decodes, makes one call, encodes. Errors are translated by the interceptor."""

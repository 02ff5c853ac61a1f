"""The servicers of the store."""

from __future__ import annotations

from typing import Any

from turnwright.store.v1 import store_service_pb2_grpc

from turnwright_store.rpc.calls import StoreBackend
from turnwright_store.rpc.delivery_servicer import DeliveryRpcs
from turnwright_store.rpc.lease_servicer import LeaseRpcs
from turnwright_store.rpc.ledger_servicer import LedgerRpcs
from turnwright_store.rpc.policy_servicer import PolicyRpcs
from turnwright_store.rpc.read_servicer import ReadRpcs
from turnwright_store.rpc.resources import register_resources


class StoreServicer(  # type: ignore[misc]  # some take values: see turnwright_core.owner_calls
    LedgerRpcs,
    LeaseRpcs,
    DeliveryRpcs,
    PolicyRpcs,
    ReadRpcs,
    store_service_pb2_grpc.StoreServiceServicer,
):
    """All rpcs of StoreService. Exceptions become a status in kit.guard."""


def register(store: StoreBackend, server: Any) -> None:
    """Add every service of the store to a server."""
    store_service_pb2_grpc.add_StoreServiceServicer_to_server(StoreServicer(store), server)
    register_resources(store, server)

"""What servicers that call the store share: its peer."""

from __future__ import annotations

from turnwright.store.v1 import store_service_pb2_grpc

from turnwright_executor.ports.vendors import CheckVendor
from turnwright_kit.peer import Peer


class Forwarding:
    """Base class of the servicers: the peer of the store, and the list of vendors."""

    store: Peer
    rows: store_service_pb2_grpc.StoreServiceAsyncStub
    check_vendor: CheckVendor

"""What servicers that call the store share: its peer, and the check of the caller's tier."""

from __future__ import annotations

from turnwright.store.v1 import store_service_pb2_grpc
from turnwright_values.types import Tier

from turnwright_core.errors import Reason, fault
from turnwright_executor.ports.vendors import CheckVendor
from turnwright_kit.identity.caller import Caller, current_caller
from turnwright_kit.peer import Peer


class Forwarding:
    """Base class of the servicers: the peer of the store, and the list of vendors."""

    store: Peer
    rows: store_service_pb2_grpc.StoreServiceAsyncStub
    check_vendor: CheckVendor


def check_client(method: str) -> Caller:
    """The caller. Raises TIER_FORBIDDEN below the tier of clients."""
    caller = current_caller()
    if caller.tier < Tier.CLIENT:
        tier = caller.tier.name.lower()
        message = f"This needs a token of the tier client; the one in use has the tier {tier}."
        raise fault(Reason.TIER_FORBIDDEN, message, method=method, tier="client", ceiling=tier)
    return caller

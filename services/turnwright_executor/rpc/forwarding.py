"""What servicers that call the store share: its peer, and the check of the caller's tier."""

from __future__ import annotations

from turnwright.store.v1 import store_service_pb2_grpc
from turnwright_values.types import Tier

from turnwright_core.errors import Reason, fault
from turnwright_executor.ports.vendors import CheckVendor
from turnwright_kit.auth import Caller, current_caller
from turnwright_kit.peer import Peer


class Forwarding:
    """Base class of the servicers: the peer of the store, and the list of vendors."""

    store: Peer
    rows: store_service_pb2_grpc.StoreServiceAsyncStub
    check_vendor: CheckVendor


def check_floor(floor: Tier, method: str) -> Caller:
    """The caller. Raises TIER_FORBIDDEN below the minimum tier."""
    caller = current_caller()
    if caller.tier < floor:
        tier, needed = caller.tier.name.lower(), floor.name.lower()
        message = f"This needs a token of the tier {needed}; the one in use has the tier {tier}."
        raise fault(Reason.TIER_FORBIDDEN, message, method=method, tier=needed, ceiling=tier)
    return caller

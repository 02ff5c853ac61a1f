"""Rpcs of the queue and its leases: claims, renewals, releases."""

from __future__ import annotations

from turnwright_store.rpc.calls import Calls


class LeaseRpcs(Calls):
    """Rpcs of the queue and its leases: claims, renewals, releases."""

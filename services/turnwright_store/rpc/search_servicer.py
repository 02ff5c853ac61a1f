"""Rpcs that search by words."""

from __future__ import annotations

from turnwright_store.rpc.calls import Calls


class SearchRpcs(Calls):
    """Rpcs that search by words."""

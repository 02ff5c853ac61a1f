"""Rpcs that fork and remove runs, and read packets."""

from __future__ import annotations

from turnwright_store.rpc.calls import Calls


class HistoryRpcs(Calls):
    """Rpcs that fork and remove runs, and read packets."""

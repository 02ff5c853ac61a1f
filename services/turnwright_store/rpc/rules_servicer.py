"""Rpcs that register schemes and constrain files."""

from __future__ import annotations

from turnwright_store.rpc.calls import Calls


class RulesRpcs(Calls):
    """Rpcs that register schemes and constrain files."""

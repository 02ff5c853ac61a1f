"""Rpcs of plan.proto."""

from __future__ import annotations

from turnwright_store.rpc.calls import Calls


class PlanRpcs(Calls):
    """Rpcs of plan.proto."""

"""Rpcs of plan.proto, forwarded to the store, which has the plans and their rules."""

from __future__ import annotations

from functools import partial
from typing import Final

from turnwright_core.entries import Tier
from turnwright_executor.rpc.forwarding import CallIdentity, Forward, Forwarding

_read = partial(Forward, identity=CallIdentity.EXECUTOR)
_write = partial(Forward, floor=Tier.CLIENT, writer=Tier.CLIENT)

_KNOWN: Final = 0
"""The store uses the window that it knows."""


class ExecutorPlanRpcs(Forwarding):
    """Plans of a run, written on the client's behalf."""

    SetPlan = _write(window=_KNOWN)
    UpdatePlan = _write(window=_KNOWN)
    RemovePlan = _write()
    GetPlan = _read()
    ListPlans = _read()

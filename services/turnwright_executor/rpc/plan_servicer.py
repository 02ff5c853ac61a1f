"""Rpcs of plan.proto: the store has the plans, and the rules for them."""

from __future__ import annotations

from functools import partial
from typing import Final

from turnwright_core.entries import Tier
from turnwright_executor.rpc.forwarding import CallIdentity, Forward, Forwarding

_read = partial(Forward, speaker=CallIdentity.EXECUTOR)
_write = partial(Forward, floor=Tier.CLIENT)

_KNOWN: Final = 0
"""The window that the store knows of."""


class ExecutorPlanRpcs(Forwarding):
    """Plans of a run, written in the client's name."""

    SetPlan = _write(window=_KNOWN)
    UpdatePlan = _write(window=_KNOWN)
    RemovePlan = _write()
    GetPlan = _read()
    ListPlans = _read()

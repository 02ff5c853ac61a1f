"""The lowest tiers of methods. Source: architecture 10."""

from __future__ import annotations

from turnwright_values.types import Tier

from turnwright_core.errors import Reason, fault
from turnwright_kit.identity.caller import Caller


def check_min_tier(caller: Caller, min_tier: Tier, method: str) -> None:
    """Refuse a method to tiers below its floor."""
    if caller.tier < min_tier:
        raise fault(
            Reason.TIER_FORBIDDEN,
            f"This needs a token of the tier {min_tier.name.lower()}; the one in use has {caller.tier.name.lower()}.",
            method=method,
            tier=min_tier.name.lower(),
            ceiling=caller.tier.name.lower(),
        )

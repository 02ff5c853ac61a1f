"""Rights that only the deployment itself has, and the lowest tiers of methods. Source: architecture 10."""

from __future__ import annotations

from turnwright_values.types import Tier

from turnwright_core.errors import Reason, fault
from turnwright_kit.identity.caller import Caller, current_caller


def check_deployment(what: str, setting: str = "") -> None:
    """Refuse changes to the deployment with a derived token. Raises TIER_FORBIDDEN.

    `setting` is the setting that would allow it. Source: architecture 10.
    """
    caller = current_caller()
    if not caller.is_trusted:
        opened = f", or {setting} on that service" if setting else ""
        raise fault(
            Reason.TIER_FORBIDDEN,
            f"Derived tokens may not do this: it needs the deployment's secret{opened}.",
            method=what,
            tier=caller.tier.name.lower(),
            ceiling=caller.highest_tier.name.lower(),
        )


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

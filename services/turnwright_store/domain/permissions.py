"""Who may write what: the writer's tier against the call's, and against the scheme's exact list.

Source: rows RU031-RU036, RU089; decisions C9, C45.
"""

from __future__ import annotations

from turnwright_values.types import Tier

from turnwright_core.errors import Reason, fault
from turnwright_core.schemes import Scheme
from turnwright_kit.auth import Caller

PERMISSION: str = "permission:403"
"""Outcome of a write that the scheme does not allow (RU034)."""


def writer_of(caller: Caller, wanted: Tier) -> Tier:
    """The tier a write is made with. Raises TIER_FORBIDDEN above the call's effective tier."""
    if wanted is Tier.UNSPECIFIED:
        return caller.tier
    if wanted > caller.tier:
        raise fault(
            Reason.TIER_FORBIDDEN,
            f"This call has the tier {caller.tier.name.lower()} and cannot write as {wanted.name.lower()}.",
            tier=wanted.name.lower(),
            ceiling=caller.tier.name.lower(),
        )
    return wanted


def check_writer(scheme: Scheme, writer: Tier, path: str) -> None:
    """Refuse a writer that the scheme does not list; no tier is implied by another."""
    if writer in scheme.writable_by:
        return
    allowed = ", ".join(tier.name.lower() for tier in sorted(scheme.writable_by))
    raise fault(
        Reason.WRITER_FORBIDDEN,
        f"{path} can be written only by {allowed}, not by {writer.name.lower()}.",
        path=path,
        scheme=scheme.name,
        writer=writer.name.lower(),
        outcome=PERMISSION,
    )


PLAN_TOOL: str = "plan_tool:409"
"""Outcome of a write to a plan by another rpc than those for plans (C45)."""


def plan_entry_error(path: str) -> Exception:
    """The refusal to change a plan as an entry, without its versions, deltas and events (C45)."""
    return fault(
        Reason.PLAN_ENTRY,
        f"{path} is part of a plan, and not written as an entry: use set_plan to replace a plan, update_plan to add to "
        "it; `turnwright plan rm` takes one away.",
        path=path,
        outcome=PLAN_TOOL,
    )


def check_record_writer(writer: Tier, path: str) -> None:
    """Only the runtime may write command records: they say what was accepted, and by whom."""
    if writer is not Tier.SYSTEM:
        raise fault(
            Reason.WRITER_FORBIDDEN,
            f"{path}: the record of a command can be written only by system, not by {writer.name.lower()}.",
            path=path,
            writer=writer.name.lower(),
            outcome=PERMISSION,
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

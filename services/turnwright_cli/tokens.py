"""`token`: tokens of lower tiers for others, derived from the deployment's secret. Source: architecture 10, 15."""

from __future__ import annotations

from turnwright_cli.exit_codes import FAILED, FailureError, usage
from turnwright_core.entries import Tier
from turnwright_core.kit.auth import derive_token
from turnwright_core.kit.settings import Settings

TIERS = {"client": Tier.CLIENT, "model": Tier.MODEL, "plugin": Tier.PLUGIN}


def secret_of(settings: Settings) -> str:
    """The deployment's secret; made where there is none. Raises FailureError for a file that holds none."""
    try:
        return settings.secret()
    except ValueError as error:
        raise FailureError(FAILED, f"{error}.") from None


def derived(secret: str, tier: str, principal: str) -> str:
    """The token of a principal at a tier. Raises FailureError for another tier or a name that cannot be one."""
    if tier not in TIERS:
        raise usage(f"--tier: unknown tier {tier!r}. Choose from {', '.join(TIERS)}.")
    try:
        return derive_token(secret, TIERS[tier], principal)
    except ValueError as error:
        raise usage(f"--principal: {error}.") from None

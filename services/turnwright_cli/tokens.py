"""`token`: prints tokens with fewer rights, derived from the deployment's secret."""

from __future__ import annotations

from turnwright_values.types import Tier

from turnwright_cli.exit_codes import FAILED, FailureError, usage
from turnwright_cli.invocation import Invocation
from turnwright_kit.identity.caller import KINDS
from turnwright_kit.identity.own_tokens import derive_token
from turnwright_kit.settings import Settings


def secret_of(settings: Settings) -> str:
    try:
        return settings.secret()
    except ValueError as error:
        raise FailureError(FAILED, f"{error}.") from None


def print_token(call: Invocation, *, tier: str, principal: str) -> int:
    try:
        print(derive_token(secret_of(call.settings), KINDS[Tier[tier.upper()]], principal))
    except ValueError as error:
        raise usage(f"--principal: {error}.") from None
    return 0

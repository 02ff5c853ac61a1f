"""`token`: makes tokens with fewer rights from the deployment's secret, and prints the keys that verify them."""

from __future__ import annotations

from collections.abc import Sequence

from turnwright_cli.exit_codes import FAILED, FailureError, usage
from turnwright_cli.invocation import Invocation
from turnwright_kit.identity.caller import Kind
from turnwright_kit.identity.own_tokens import DAY_S, TokenKey, make_token
from turnwright_kit.settings import Settings


def secret_of(settings: Settings) -> str:
    try:
        return settings.secret()
    except ValueError as error:
        raise FailureError(FAILED, f"{error}.") from None


def create_token(
    call: Invocation,
    *,
    principal: str,
    kind: str,
    audience: str,
    projects: Sequence[str],
    groups: Sequence[str],
    days: int,
) -> int:
    key = TokenKey.of(secret_of(call.settings), audience)
    try:
        print(make_token(key, principal, Kind(kind), days * DAY_S, projects=projects or None, groups=groups))
    except ValueError as error:
        raise usage(f"{error}.") from None
    return 0


def print_key(call: Invocation, *, audience: str) -> int:
    print(TokenKey.of(secret_of(call.settings), audience).text)
    return 0

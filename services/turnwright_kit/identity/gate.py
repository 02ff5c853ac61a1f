"""The gate: authenticates the caller of each call, and lowers its tier if the call asks for it.

Source: architecture 10.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct, structs
from turnwright_values.types import Tier

from turnwright_core.errors import Reason, fault
from turnwright_kit.identity.caller import Caller, enter_caller
from turnwright_kit.identity.headers import AUTHORIZATION, TIER
from turnwright_kit.identity.own_tokens import authenticate
from turnwright_kit.scope import Metadata

_SEND_ONE: Final = "Send `authorization: Bearer <token>` with the token of this deployment (TURNWRIGHT_TOKEN)."
_UNKNOWN: Final = (
    "The token does not belong to this deployment: send the one in the file `token` of its home, or one that "
    "`turnwright token` made from it."
)


class LocalIdentity(Struct):
    """Who a peer in this process is. It sends the same metadata with each call, which need not be checked again."""

    metadata: Metadata | None = None
    caller: Caller | None = None


class CallerGate:
    """Authenticates callers, and refuses calls without a valid token or with a tier above what it allows."""

    def __init__(self, secret: str, floor: Tier, accepted: Iterable[str] = ()) -> None:
        """Verify tokens with this secret, or with others while it is replaced; callers below the floor are refused."""
        self._secrets = (secret, *accepted)
        self._floor = floor

    def admit(self, metadata: Metadata, identity: LocalIdentity | None = None) -> str:
        """Authenticate an rpc and set its caller; returns the principal. Raises an error for the caller."""
        known = identity or LocalIdentity()
        if known.caller is None or known.metadata is not metadata:
            known.caller, known.metadata = self.check(metadata), metadata
        enter_caller(known.caller)
        return known.caller.name

    def check(self, metadata: Metadata) -> Caller:
        """The caller. Raises an error for the caller."""
        headers = dict(metadata)
        if len(headers) < len(metadata):
            _check_single(metadata)
        scheme, _, token = str(headers.get(AUTHORIZATION, "")).partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise fault(Reason.UNAUTHENTICATED, _SEND_ONE)
        for secret in self._secrets:
            if caller := authenticate(token, secret):
                break
        else:
            raise fault(Reason.UNAUTHENTICATED, _UNKNOWN)
        if wanted := headers.get(TIER):
            caller = _lowered(caller, str(wanted))
        if caller.tier < self._floor:
            raise fault(
                Reason.TIER_FORBIDDEN,
                f"This service requires the tier {self._floor.name.lower()} or above.",
                tier=caller.tier.name.lower(),
                ceiling=caller.highest_tier.name.lower(),
            )
        return caller


def _check_single(metadata: Metadata) -> None:
    """If a header is there twice, nobody knows which one a proxy on the way has checked, so neither counts."""
    keys = [key for key, _ in metadata]
    for header, reason in ((AUTHORIZATION, Reason.UNAUTHENTICATED), (TIER, Reason.INVALID_FIELD)):
        if keys.count(header) > 1:
            raise fault(reason, f"Send `{header}` once, not several times.", field=header)


def _lowered(caller: Caller, wanted: str) -> Caller:
    tier = Tier.__members__.get(wanted.upper())
    if tier is None or tier is Tier.UNSPECIFIED:
        raise fault(Reason.INVALID_FIELD, f"{TIER} must be model, client, plugin or system.", field=TIER)
    if tier > caller.highest_tier:
        raise fault(
            Reason.TIER_FORBIDDEN,
            f"This token allows at most the tier {caller.highest_tier.name.lower()}.",
            tier=wanted,
            ceiling=caller.highest_tier.name.lower(),
        )
    return structs.replace(caller, tier=tier)

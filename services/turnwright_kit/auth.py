"""Authentication: every call carries a bearer token that fixes the highest tier; a call may only lower it.

The secret of a deployment (`$TURNWRIGHT_HOME/token`, or TURNWRIGHT_TOKEN) is itself a token of the tier `system`.
Tokens of lower tiers are derived from it, `tw1.{tier}.{principal}.{mac}`: every service that knows the secret can
verify them locally, and an altered tier or name does not match its MAC. Source: architecture 10, 15.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Final

from msgspec import Struct
from turnwright_values.types import Tier

from turnwright_core.errors import Reason, fault
from turnwright_kit.scope import Metadata

AUTHORIZATION: Final = "authorization"
TIER: Final = "turnwright-tier"
OPERATOR: Final = "operator"

_OPEN_METHODS: Final = ("/grpc.health.v1.Health/",)
"""Methods without authentication: an orchestrator's probes cannot send metadata, and health only says serving or not.
"""

_SEND_ONE: Final = "Send `authorization: Bearer <token>` with the token of this deployment (TURNWRIGHT_TOKEN)."
_UNKNOWN: Final = (
    "The token does not belong to this deployment: send the one in the file `token` of its home, or one that "
    "`turnwright token` made from it."
)

_PRINCIPAL: Final = re.compile(r"[A-Za-z0-9_@-]{1,64}")
_TOKEN: Final = re.compile(r"[!-~]([ -~]*[!-~])?")


def check_token(token: str) -> str:
    """A token that is valid in a header. Raises ValueError with a sentence for others."""
    if not _TOKEN.fullmatch(token):
        raise ValueError("must be plain ASCII text, because it travels in a header")
    return token


class Caller(Struct, frozen=True):
    """Who makes the current call: principal, effective tier, and the highest tier its token allows."""

    principal: str
    tier: Tier
    ceiling: Tier

    @property
    def holds_secret(self) -> bool:
        """Whether the token is the deployment's secret or equivalent, even if the call asks for a lower tier."""
        return self.ceiling is Tier.SYSTEM


class LocalIdentity(Struct):
    """Who a peer in this process is. It sends the same metadata with each call, which need not be checked again."""

    metadata: Metadata | None = None
    caller: Caller | None = None


_caller: ContextVar[Caller] = ContextVar("turnwright_caller")


def current_caller() -> Caller:
    """The caller of the rpc being handled. Raises LookupError outside an rpc."""
    return _caller.get()


def derive_token(secret: str, tier: Tier, principal: str) -> str:
    """A token of a lower tier for a principal. Raises ValueError for a name that cannot be part of a token."""
    if not _PRINCIPAL.fullmatch(principal):
        raise ValueError("a principal has 1 to 64 characters out of letters, digits, '_', '-' and '@'")
    if principal == OPERATOR:
        raise ValueError(
            f"the principal {OPERATOR!r} stands for the holder of the deployment's secret: choose another name"
        )
    claim = f"tw1.{tier.name.lower()}.{principal}"
    mac = hmac.new(secret.encode(), claim.encode(), hashlib.sha256).hexdigest()
    return f"{claim}.{mac}"


def authenticate(token: str, secret: str) -> Caller | None:
    """The caller that a token identifies, at its highest tier; None for a token not derived from this secret."""
    if not _TOKEN.fullmatch(token):
        return None
    if hmac.compare_digest(token.encode(), secret.encode()):
        return Caller(OPERATOR, Tier.SYSTEM, Tier.SYSTEM)
    parts = token.split(".")
    tier = Tier.__members__.get(parts[1].upper()) if len(parts) == 4 else None
    if tier is None or not _PRINCIPAL.fullmatch(parts[2]) or parts[2] == OPERATOR:
        return None
    if not hmac.compare_digest(token.encode(), derive_token(secret, tier, parts[2]).encode()):
        return None
    return Caller(parts[2], tier, tier)


def call_metadata(token: str, tier: Tier | None = None) -> tuple[tuple[str, str], ...]:
    """The metadata for an outgoing call; a tier lowers the token's. Raises UNAUTHENTICATED for an invalid token."""
    try:
        check_token(token)
    except ValueError as error:
        raise fault(Reason.UNAUTHENTICATED, f"The token {error}.") from None
    metadata = ((AUTHORIZATION, f"Bearer {token}"),)
    return metadata if tier is None else (*metadata, (TIER, tier.name.lower()))


def is_open(method: str) -> bool:
    return method.startswith(_OPEN_METHODS)


class Authenticator:
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
        _caller.set(known.caller)
        return known.caller.principal

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
                ceiling=caller.ceiling.name.lower(),
            )
        return caller


def _check_single(metadata: Metadata) -> None:
    """If a header is there twice, nobody knows which one a proxy on the way has checked, so neither counts."""
    keys = [key for key, _ in metadata]
    for header, reason in ((AUTHORIZATION, Reason.UNAUTHENTICATED), (TIER, Reason.INVALID_FIELD)):
        if keys.count(header) > 1:
            raise fault(reason, f"Send `{header}` once, not several times.", field=header)


def check_deployment(what: str, setting: str = "") -> None:
    """Refuse changes to the deployment with a derived token. Raises TIER_FORBIDDEN.

    `setting` is the setting that would allow it. Source: architecture 10.
    """
    caller = current_caller()
    if not caller.holds_secret:
        opened = f", or {setting} on that service" if setting else ""
        raise fault(
            Reason.TIER_FORBIDDEN,
            f"Derived tokens may not do this: it needs the deployment's secret{opened}.",
            method=what,
            tier=caller.tier.name.lower(),
            ceiling=caller.ceiling.name.lower(),
        )


def _lowered(caller: Caller, wanted: str) -> Caller:
    tier = Tier.__members__.get(wanted.upper())
    if tier is None or tier is Tier.UNSPECIFIED:
        raise fault(Reason.INVALID_FIELD, f"{TIER} must be model, client, plugin or system.", field=TIER)
    if tier > caller.ceiling:
        raise fault(
            Reason.TIER_FORBIDDEN,
            f"This token allows at most the tier {caller.ceiling.name.lower()}.",
            tier=wanted,
            ceiling=caller.ceiling.name.lower(),
        )
    return Caller(caller.principal, tier, caller.ceiling)


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

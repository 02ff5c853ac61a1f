"""Our own tokens, which are derived from the deployment's secret: `tw1.{tier}.{principal}.{mac}`.

Every service that knows the secret can verify them locally, and an altered tier or name does not match its MAC.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

from turnwright_values.types import Tier

from turnwright_kit.identity.caller import KINDS, OPERATOR, TIERS, Caller, Kind, Proof
from turnwright_kit.identity.headers import check_token

_PRINCIPAL: Final = re.compile(r"[A-Za-z0-9_@-]{1,64}")


def derive_token(secret: str, kind: Kind, principal: str) -> str:
    """A token with fewer rights for a principal. Raises ValueError for a name that cannot be part of a token."""
    if not _PRINCIPAL.fullmatch(principal):
        raise ValueError("a principal has 1 to 64 characters out of letters, digits, '_', '-' and '@'")
    if principal == OPERATOR:
        raise ValueError(
            f"the principal {OPERATOR!r} stands for the holder of the deployment's secret: choose another name"
        )
    claim = f"tw1.{TIERS[kind].name.lower()}.{principal}"
    mac = hmac.new(secret.encode(), claim.encode(), hashlib.sha256).hexdigest()
    return f"{claim}.{mac}"


def authenticate(token: str, secret: str) -> Caller | None:
    """The caller that a token identifies, at its highest tier; None for a token not derived from this secret."""
    try:
        check_token(token)
    except ValueError:
        return None
    if hmac.compare_digest(token.encode(), secret.encode()):
        return Caller(OPERATOR, Kind.PERSON, Tier.SYSTEM, Proof.SECRET)
    parts = token.split(".")
    tier = Tier.__members__.get(parts[1].upper()) if len(parts) == 4 else None
    kind = KINDS.get(tier) if tier else None
    if kind is None or not _PRINCIPAL.fullmatch(parts[2]) or parts[2] == OPERATOR:
        return None
    if not hmac.compare_digest(token.encode(), derive_token(secret, kind, parts[2]).encode()):
        return None
    return Caller(parts[2], kind, TIERS[kind])

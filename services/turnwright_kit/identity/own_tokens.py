"""Our own tokens: JWTs (RFC 7519), signed with HMAC-SHA-256 by a key that is derived from the deployment's secret.

HS256 is symmetric: who can verify a token can make one. So each service, a token's audience, has a key of its own, and
an executor, where the commands of models run, holds nothing that makes a token for the store. Source: ADR 65.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Self

from msgspec import Struct

from turnwright_core.errors import TurnwrightError
from turnwright_kit.identity.caller import OPERATOR, TIERS, Caller, Kind, Proof
from turnwright_kit.identity.refusals import ANOTHER, of_jwt, refusal

AUDIENCES: Final = ("executor", "store", "assembler", "provider", "mcp")
ISSUER: Final = "turnwright"

DAYS: Final = 30
"""Days for which a token is valid, unless another time is asked for."""
DAYS_MAX: Final = 400

DAY_S: Final = 86_400
LEEWAY_S: Final = 60
"""Seconds by which clocks may differ."""

NAMES_MAX: Final = 64
"""Projects, or groups, in one token."""

_ALGORITHM: Final = "HS256"
_NAME: Final = re.compile(r"[A-Za-z0-9_@.-]{1,64}")
_KEY_BYTES: Final = 32
_KEY_ID: Final = re.compile(rf"[0-9a-f]{{8}}\.({'|'.join(AUDIENCES)})")


def derived_key(secret: str, purpose: str) -> bytes:
    """The key that a secret has for a purpose: HKDF-SHA-256 (RFC 5869), whose output is one block here."""
    extracted = hmac.digest(bytes(_KEY_BYTES), secret.encode(), "sha256")
    return hmac.digest(extracted, f"turnwright {purpose}\x01".encode(), "sha256")


class TokenKey(Struct, frozen=True):
    """What makes and verifies the tokens of one audience."""

    audience: str
    value: bytes

    @property
    def id(self) -> str:
        """The `kid` of its tokens; it tells nothing of the key but which one it is."""
        return f"{hashlib.sha256(self.value).hexdigest()[:8]}.{self.audience}"

    @property
    def text(self) -> str:
        """As in TURNWRIGHT_KEYS."""
        return f"{self.audience}:{base64.urlsafe_b64encode(self.value).decode().rstrip('=')}"

    @classmethod
    def of(cls, secret: str, audience: str) -> Self:
        return cls(audience, derived_key(secret, f"token {audience}"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError with a sentence."""
        audience, _, encoded = text.partition(":")
        try:
            value = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            value = b""
        if audience not in AUDIENCES or len(value) != _KEY_BYTES:
            raise ValueError("must be keys that `turnwright token key SERVICE` has printed, separated by commas")
        return cls(audience, value)


def check_name(name: str, kind: Kind) -> str:
    """A principal of our own tokens. Raises ValueError with a sentence for others."""
    if not _NAME.fullmatch(name):
        raise ValueError("a principal has 1 to 64 characters out of letters, digits, '_', '-', '.' and '@'")
    if name == OPERATOR:
        raise ValueError(
            f"the principal {name!r} stands for the holder of the deployment's secret: choose another name"
        )
    if name in AUDIENCES and kind is not Kind.SERVICE:
        raise ValueError(f"the principal {name!r} is the name of a service: choose another name")
    return name


def check_names(names: Collection[str]) -> None:
    """Projects, or groups, of a caller. Raises ValueError with a sentence for too many."""
    if len(names) > NAMES_MAX or not all(0 < len(each) <= NAMES_MAX * 4 for each in names):
        raise ValueError(f"a caller has at most {NAMES_MAX} projects and {NAMES_MAX} groups, each with a name")


def make_token(
    key: TokenKey,
    name: str,
    kind: Kind,
    lasts_s: float,
    *,
    projects: Collection[str] | None = None,
    groups: Collection[str] = (),
    token_id: str = "",
) -> str:
    """A token for the audience of the key, which lasts so many seconds.

    `projects` are those that it is limited to; None: it is not limited. `token_id`: its `jti`; empty: a new one.
    Raises ValueError with a sentence.
    """
    import jwt  # noqa: PLC0415 - loads cryptography; who has the secret needs neither

    if not 0 < lasts_s <= DAYS_MAX * DAY_S:
        raise ValueError(f"a token is valid for at most {DAYS_MAX} days")
    check_names(projects or ())
    check_names(groups)
    now_s = int(time.time())
    claims: dict[str, Any] = {
        "iss": ISSUER,
        "sub": check_name(name, kind),
        "kind": kind.value,
        "aud": key.audience,
        "iat": now_s,
        "exp": now_s + int(lasts_s),
        "jti": token_id or secrets.token_urlsafe(12),
    }
    if projects is not None:
        claims["prj"] = sorted(projects)
    if groups:
        claims["grp"] = sorted(groups)
    return jwt.encode(claims, key.value, algorithm=_ALGORITHM, headers={"kid": key.id})


def is_own(key_id: str) -> bool:
    """Whether a `kid` is of a token of ours, of any deployment."""
    return _KEY_ID.fullmatch(key_id) is not None


class OwnTokens:
    """Verifies the tokens of one audience, with each of the keys that it accepts."""

    def __init__(self, audience: str, keys: Iterable[TokenKey]) -> None:
        self._audience = audience
        self._keys = {key.id: key.value for key in keys if key.audience == audience}

    def caller(self, token: str, key_id: str) -> Caller:
        """Who a token is of. Raises UNAUTHENTICATED."""
        import jwt  # noqa: PLC0415 - as above

        key = self._keys.get(key_id)
        if key is None:
            raise self._unknown(key_id.partition(".")[2])
        required = ["iss", "sub", "aud", "exp", "iat", "jti"]
        try:
            claims = jwt.decode(
                token, key, algorithms=[_ALGORITHM], audience=self._audience, issuer=ISSUER, leeway=LEEWAY_S,
                options={"require": required},
            )  # fmt: skip
        except jwt.PyJWTError as error:
            raise of_jwt(error, token) from None
        return _caller_of(claims)

    def _unknown(self, audience: str) -> TurnwrightError:
        here = self._audience
        if audience == here:
            why = "it is of another deployment, or its secret has been replaced"
            return refusal("unknown_key", f"The key of this token is not accepted, or not any more: {why}. {ANOTHER}")
        make = f"`turnwright token create --principal NAME --audience {here}`"
        return refusal("audience", f"This is a token for the {audience}, and here is the {here}: make one with {make}.")


def _caller_of(claims: Mapping[str, Any]) -> Caller:
    """The caller of claims that our key has signed; another release may have made them."""
    kind = {kind.value: kind for kind in Kind}.get(claims.get("kind", ""))
    projects, groups = claims.get("prj"), claims.get("grp", [])
    is_known = kind is not None and _are_names(groups) and (projects is None or _are_names(projects))
    if kind is None or not is_known or not _NAME.fullmatch(claims["sub"]) or claims["sub"] == OPERATOR:
        raise refusal("malformed", f"This token has claims that this release does not know. {ANOTHER}")
    return Caller(
        claims["sub"],
        kind,
        TIERS[kind],
        Proof.TOKEN,
        groups=frozenset(groups),
        token=claims["jti"],
        expires_ms=int(claims["exp"]) * 1000,
        projects=None if projects is None else frozenset(projects),
    )


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)

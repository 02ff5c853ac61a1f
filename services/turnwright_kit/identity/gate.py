"""The gate: makes the caller of each call from the headers that it sends, and remembers whom it has verified.

Nothing else reads a token. What counts is the first that fits: the deployment's secret, a token of our own, one of a
configured issuer, and for calls without a token the certificate of their connection. A token is what this call says; a
certificate is what all calls of a connection have in common. So a token that is wrong is refused: nothing else makes up
for it.
Source: architecture 10, ADR 65.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, structs
from turnwright_values.types import Tier

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.rpc.headers import AUTHORIZATION, FORWARDED, TIER
from turnwright_kit.identity.caller import OPERATOR, Caller, Kind, Proof
from turnwright_kit.identity.credentials import FOR, caller_for
from turnwright_kit.identity.own_tokens import LEEWAY_S, OwnTokens, TokenKey, is_own
from turnwright_kit.identity.peers import Peers
from turnwright_kit.identity.refusals import ANOTHER, of_jwt, refusal
from turnwright_kit.scope import Metadata

if TYPE_CHECKING:
    from turnwright_kit.identity.issuers import Issuers

TOKEN_BYTES_MAX: Final = 12 * 1024
"""Maximum length of a token, in bytes: one with 200 groups of an issuer has 8 KiB."""

KNOWN_MAX: Final = 4096
"""Verified tokens that are remembered."""

_SEND_ONE: Final = "Send `authorization: Bearer <token>` with the token of this deployment (TURNWRIGHT_TOKEN)."
_UNKNOWN: Final = (
    "The token does not belong to this deployment: send the one in the file `token` of its home, or one that "
    "`turnwright token create` made for it."
)
_OLD_FORM: Final = (
    "This is a token of a release before 0.1.0. Make a new one: "
    "`turnwright token create --principal ci --project PROJECT`."
)


class _Known(Struct, frozen=True):
    """Whom headers name, with the end and the id of the token that was verified for it."""

    caller: Caller
    expires_ms: int
    token: str

    def is_over(self) -> bool:
        return bool(self.expires_ms) and self.expires_ms / 1000 + LEEWAY_S <= time.time()


class CallerGate:
    """Authenticates callers, and refuses calls without a valid token or with a tier above what it allows."""

    def __init__(
        self,
        audience: str,
        secrets: Iterable[str],
        floor: Tier = Tier.CLIENT,
        keys: Iterable[TokenKey] = (),
        issuers: Issuers | None = None,
        peers: Peers | None = None,
    ) -> None:
        """Take calls to a service, its tokens' audience; callers below the floor are refused.

        `secrets` are those of the deployment: more than one while the first is replaced, none where it is not known.
        """
        self._secrets = tuple(secret.encode() for secret in secrets)
        self._own = OwnTokens(audience, (*(TokenKey.of(secret, audience) for secret in secrets), *keys))
        self._issuers = issuers
        self._peers = peers
        self._floor = floor
        self._known: dict[tuple[object, ...], _Known] = {}
        self.revoked: frozenset[str] = frozenset()
        """Ids of the tokens that are refused though they are valid."""

    def is_by_connection(self, metadata: Metadata) -> bool:
        """Whether the connection says who makes a call: it has no token, and certificates count here."""
        return self._peers is not None and not any(key == AUTHORIZATION for key, _ in metadata)

    def caller(self, metadata: Metadata, context: Any = None) -> Caller:
        """The caller that the headers of a call name. Raises UNAUTHENTICATED, TIER_FORBIDDEN, and others.

        `context` is that of a call whose caller its connection says.
        """
        headers = dict(metadata)
        if len(headers) < len(metadata):
            _check_single(metadata)
        sent: tuple[object, ...] = headers.get(AUTHORIZATION), headers.get(TIER), headers.get(FOR)
        connection = self._peers.connection(context) if context is not None and self._peers else None
        if connection:
            sent = (*sent, headers.get(FORWARDED), connection)
        known = self._known.get(sent)
        if known is None or known.is_over():
            if connection and self._peers:
                sender = self._peers.caller(connection, str(headers.get(FORWARDED) or ""))
            else:
                sender = self._verified(str(sent[0] or ""))
            caller = _lowered(sender, str(sent[1])) if sent[1] else sender
            if sent[2]:
                caller = caller_for(caller, str(sent[2]))
            self._check_floor(caller)
            if len(self._known) >= KNOWN_MAX:
                del self._known[next(iter(self._known))]
            known = self._known[sent] = _Known(caller, sender.expires_ms, sender.token)
        if self.revoked and not self.revoked.isdisjoint((known.token, known.caller.token)):
            raise revoked_error()
        return known.caller

    def _verified(self, authorization: str) -> Caller:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise refusal("missing", _SEND_ONE)
        if len(token) > TOKEN_BYTES_MAX:
            raise refusal("malformed", f"This token has {len(token)} bytes; at most {TOKEN_BYTES_MAX} are taken.")
        for secret in self._secrets:
            if hmac.compare_digest(token.encode(), secret):
                return Caller(OPERATOR, Kind.PERSON, Tier.SYSTEM, Proof.SECRET)
        if token.startswith("tw1."):
            raise refusal("old_form", _OLD_FORM)
        if token.count(".") != 2:
            raise refusal("unknown_key", _UNKNOWN)
        import jwt  # noqa: PLC0415 - loads cryptography; who has the secret needs neither

        try:
            key_id = jwt.get_unverified_header(token).get("kid")
        except (jwt.PyJWTError, RecursionError):
            raise of_jwt(jwt.DecodeError(), token) from None
        if isinstance(key_id, str) and is_own(key_id):
            return self._own.caller(token, key_id)
        if self._issuers and (issuer := self._issuers.find(token)):
            return issuer.caller(token, key_id)
        raise refusal("issuer", _UNKNOWN)

    def _check_floor(self, caller: Caller) -> None:
        if caller.tier < self._floor:
            raise fault(
                Reason.TIER_FORBIDDEN,
                f"This service requires the tier {self._floor.name.lower()} or above.",
                tier=caller.tier.name.lower(),
                ceiling=caller.highest_tier.name.lower(),
            )


def revoked_error() -> TurnwrightError:
    return refusal("revoked", f"This token has been revoked. {ANOTHER}")


def _check_single(metadata: Metadata) -> None:
    """If a header is there twice, nobody knows which one a proxy on the way has checked, so neither counts."""
    keys = [key for key, _ in metadata]
    for header, reason in (
        (AUTHORIZATION, Reason.UNAUTHENTICATED),
        (TIER, Reason.INVALID_FIELD),
        (FOR, Reason.INVALID_FIELD),
    ):
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

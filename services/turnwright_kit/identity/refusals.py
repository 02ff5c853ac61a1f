"""Why a call is not authenticated. The texts name no principal: what is in a token that is refused is not proven."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

from turnwright_core.errors import Reason, TurnwrightError, fault

Cause = Literal[
    "missing", "malformed", "unknown_key", "signature", "expired", "not_yet", "audience", "revoked", "issuer",
    "old_form", "certificate",
]  # fmt: skip
"""What clients can tell apart, as the metadata `cause`."""


ANOTHER: Final = "Make one with `turnwright token create --principal NAME`."


def refusal(cause: Cause, message: str) -> TurnwrightError:
    return fault(Reason.UNAUTHENTICATED, message, cause=cause)


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_PROBLEMS: Final[Mapping[str, tuple[Cause, str]]] = {
    "InvalidSignatureError": ("signature", "The signature of this token is not that of its key: it has been altered."),
    "InvalidAlgorithmError": ("signature", "This token is signed with an algorithm that is not accepted for its key."),
    "InvalidAudienceError": ("audience", "This token is for another audience."),
    "InvalidIssuerError": ("issuer", "This token names another issuer than the one that its key belongs to."),
}
_MALFORMED: Final = "This token is not a well-formed JWT: send it as it was issued, whole and unchanged."


def of_jwt(error: Exception, token: str) -> TurnwrightError:
    """The refusal for what PyJWT says of a token."""
    import jwt  # noqa: PLC0415 - loads cryptography; who has the secret needs neither

    if isinstance(error, jwt.ExpiredSignatureError | jwt.ImmatureSignatureError):
        # Both come after the signature was verified.
        claims: Mapping[str, Any] = jwt.decode(token, options={"verify_signature": False})
        now = f"by this host's clock it is {moment(time.time())}"
        if isinstance(error, jwt.ExpiredSignatureError):
            return refusal("expired", f"This token has expired at {moment(claims['exp'])} ({now}): get a new one.")
        begins = max(claims.get("nbf", 0), claims.get("iat", 0))
        return refusal("not_yet", f"This token is not valid before {moment(begins)} ({now}): compare the clocks.")
    if isinstance(error, jwt.MissingRequiredClaimError):
        return refusal("malformed", f"This token lacks the claim {error.claim!r}.")
    return refusal(*_PROBLEMS.get(type(error).__name__, ("malformed", _MALFORMED)))

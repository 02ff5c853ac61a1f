"""The headers that say who calls."""

from __future__ import annotations

import re
from typing import Final

from turnwright_values.types import Tier

from turnwright_core.errors import Reason, fault
from turnwright_core.limits import MESSAGE_BYTES_MAX

AUTHORIZATION: Final = "authorization"
TIER: Final = "turnwright-tier"
FORWARDED: Final = "x-forwarded-client-cert"
"""What a proxy says of its client's certificate."""

RECEIVES: Final = "turnwright-receive-bytes"
"""Metadata of a call: the longest message that the caller accepts, in bytes."""

RECEIVES_ALL: Final = (RECEIVES, str(MESSAGE_BYTES_MAX))
"""The value that our own callers send."""

_OPEN_METHODS: Final = ("/grpc.health.v1.Health/",)
"""Methods without authentication: an orchestrator's probes cannot send metadata, and health only says serving or not.
"""

_TOKEN: Final = re.compile(r"[!-~]([ -~]*[!-~])?")


def check_token(token: str) -> str:
    """A token that is valid in a header. Raises ValueError with a sentence for others."""
    if not _TOKEN.fullmatch(token):
        raise ValueError("must be plain ASCII text, because it travels in a header")
    return token


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

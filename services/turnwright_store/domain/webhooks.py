"""What a webhook may be, when it is tried again, and how what it is told is signed (Standard Webhooks 1.0)."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from turnwright_core.checks import check_chars, invalid
from turnwright_kit.identity.own_tokens import derived_key

ATTEMPTS_S: Final = (5, 5 * 60, 30 * 60, *(3600 * hours for hours in (2, 5, 10, 14, 20, 24)))
"""Seconds from a failed attempt to the next one; after the last of these it is given up."""

LEASE_MS: Final = 60_000
"""Milliseconds that whoever sends something has for it."""

URL_CHARS_MAX: Final = 2048
WEBHOOKS_MAX: Final = 100
"""Most webhooks of a project."""

PENDING_MAX: Final = 10_000
"""Most pending deliveries of a project."""

DELIVERED_DAYS: Final = 7
DEAD_DAYS: Final = 30
"""Days for which deliveries are kept after their end."""

GONE: Final = 410
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VISIBLE: Final = re.compile(r"[!-~]+")


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise invalid("webhook.name", "A webhook's name has 1 to 64 characters out of A-Z a-z 0-9 _ and -.")


def check_url(url: str) -> None:
    check_chars("webhook.url", url, URL_CHARS_MAX)
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0 and not (parts.username or parts.fragment)
    except ValueError:
        is_whole = False
    if not (_VISIBLE.fullmatch(url) and is_whole and parts.scheme in ("https", "http")):
        raise invalid(
            "webhook.url",
            "A webhook's URL is `https://HOST/PATH`, without a user name and a fragment, its special characters "
            "percent-encoded. `http://` is for the networks that TURNWRIGHT_WEB_NETWORKS of the executors names.",
        )


def next_wait_s(attempt: int) -> int | None:
    """Seconds until the attempt after this one, counted from 1; None: there is none."""
    return ATTEMPTS_S[attempt - 1] if attempt <= len(ATTEMPTS_S) else None


def is_delivered(http_status: int) -> bool:
    return 200 <= http_status < 300


def shown_secret(secret: str, salt: str) -> str:
    """What the server of a webhook verifies signatures with."""
    return f"whsec_{base64.b64encode(_key(secret, salt)).decode()}"


def signed(secrets: Collection[str], salt: str, delivery_id: str, time_s: int, body: str) -> dict[str, str]:
    """The headers that sign a delivery, by each secret that is accepted: one of them the server knows."""
    content = f"{delivery_id}.{time_s}.{body}".encode()
    digests = (hmac.digest(_key(secret, salt), content, "sha256") for secret in secrets)
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(time_s),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests),
    }


def _key(secret: str, salt: str) -> bytes:
    return derived_key(secret, f"webhook {salt}")

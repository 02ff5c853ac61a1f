"""Tokens of pages: where the next page begins, opaque to callers."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Final

from turnwright_store.domain.checks import check_chars, invalid

TOKEN_CHARS_MAX: Final = 16 * 1024

Place = tuple[int | str, ...]


def token_of(place: Place | None) -> str:
    """The token of the page after `place`; empty when there is none."""
    if place is None:
        return ""
    return base64.urlsafe_b64encode(json.dumps(place, separators=(",", ":")).encode()).decode()


def place_of(token: str, *kinds: type[int | str]) -> Place | None:
    """The place in a token, None for an empty one. Raises InvalidError for a token that this list did not make."""
    if not token:
        return None
    check_chars("page_token", token, TOKEN_CHARS_MAX)
    try:
        place = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (binascii.Error, ValueError):
        place = None
    if not isinstance(place, list) or [type(part) for part in place] != list(kinds):
        raise invalid("page_token", "page_token must be the next_page_token of an earlier page of the same list.")
    return tuple(place)

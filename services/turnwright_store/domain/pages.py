"""Tokens of pages: where the next page begins, opaque to callers."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from turnwright_core.checks import check_chars, invalid
from turnwright_core.errors import TurnwrightError
from turnwright_core.limits import MESSAGE_BYTES_MAX, PAGE_BYTES_MAX

TOKEN_CHARS_MAX: Final = 16 * 1024
"""Longest token; that of the longest path needs three quarters of it."""

PLACE_MAX: Final = 2**63 - 1
"""Largest number that a database can be asked for."""

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")

ANSWER_BYTES_MAX: Final = MESSAGE_BYTES_MAX - 1024 * 1024
"""Maximum bytes of the items in a message; the rest is for overhead."""

BOUND_CHARS: Final = 16
"""Length of the digest of a request and its caller, which ends its tokens."""

T = TypeVar("T")
PageStart = tuple[int | str, ...]


def encode_page_token(place: PageStart | None) -> str:
    """The token of the page after `place`; empty when there is none."""
    if place is None:
        return ""
    # Without escapes: one takes six times as many bytes, and paths are long.
    return base64.urlsafe_b64encode(json.dumps(place, ensure_ascii=False, separators=(",", ":")).encode()).decode()


def decode_page_token(token: str, *kinds: type[int | str]) -> PageStart | None:
    """The place in a token, None for an empty one. Raises InvalidError for a token that this list did not make."""
    if not token:
        return None
    check_chars("page_token", token, TOKEN_CHARS_MAX)
    try:
        place = json.loads(base64.b64decode(token.encode(), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        place = None
    if not isinstance(place, list) or [type(part) for part in place] != list(kinds) or any(map(_is_unstorable, place)):
        raise foreign_token()
    return tuple(max(-PLACE_MAX, min(part, PLACE_MAX)) if isinstance(part, int) else part for part in place)


def foreign_token() -> TurnwrightError:
    """The error for a token that the list did not make, or made for another request."""
    message = (
        "page_token must be the next_page_token of an earlier page of the same list, asked for in the same way and by "
        "the same caller."
    )
    return invalid("page_token", message)


def bind_token(token: str, request: str) -> str:
    """A token for callers: it is only valid in requests with this digest."""
    return token and token + request


def unbound_token(token: str, request: str) -> str:
    """The token of a caller as a list made it. Raises InvalidError if that was for another request."""
    if token and not token.endswith(request):
        raise foreign_token()
    return token.removesuffix(request)


def _is_unstorable(part: int | str) -> bool:
    """Whether a text cannot be a parameter of a query, so that no page can have ended with it."""
    return isinstance(part, str) and _UNSTORABLE.search(part) is not None


def page_of(
    items: Iterable[T], size: int, place: Callable[[T], PageStart], weight: Callable[[T], int] | None = None
) -> tuple[list[T], str]:
    """The first items, as many as requested and as fit into a message, and the token of the next page.

    `items` is consumed lazily; `weight` is in bytes.
    """
    page: list[T] = []
    total = 0
    for item in items:
        total += weight(item) if weight else 0
        if page and (len(page) == size or total > PAGE_BYTES_MAX):
            return page, encode_page_token(place(page[-1]))
        page.append(item)
    return page, ""

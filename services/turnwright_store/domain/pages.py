"""Tokens of pages: where the next page begins, opaque to callers."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from turnwright_core.checks import check_chars, invalid
from turnwright_core.limits import MESSAGE_BYTES_MAX, PAGE_BYTES_MAX

TOKEN_CHARS_MAX: Final = 16 * 1024
"""Longest token: that of the longest path has three quarters of it."""

PLACE_MAX: Final = 2**63 - 1
"""Largest number that a database can be asked for."""

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")

ANSWER_BYTES_MAX: Final = MESSAGE_BYTES_MAX - 1024 * 1024
"""Most bytes of items in an answer that is one message; the rest is for what stands around them."""

T = TypeVar("T")
PageStart = tuple[int | str, ...]


def token_of(place: PageStart | None) -> str:
    """The token of the page after `place`; empty when there is none."""
    if place is None:
        return ""
    # Without escapes: one takes six times as many bytes, and paths are long.
    return base64.urlsafe_b64encode(json.dumps(place, ensure_ascii=False, separators=(",", ":")).encode()).decode()


def place_of(token: str, *kinds: type[int | str]) -> PageStart | None:
    """The place in a token, None for an empty one. Raises InvalidError for a token that this list did not make."""
    if not token:
        return None
    check_chars("page_token", token, TOKEN_CHARS_MAX)
    try:
        place = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (binascii.Error, ValueError):
        place = None
    if not isinstance(place, list) or [type(part) for part in place] != list(kinds) or any(map(_is_unstorable, place)):
        raise invalid("page_token", "page_token must be the next_page_token of an earlier page of the same list.")
    return tuple(max(-PLACE_MAX, min(part, PLACE_MAX)) if isinstance(part, int) else part for part in place)


def _is_unstorable(part: int | str) -> bool:
    """Whether it is a text that a database cannot even be asked for: no page has ended with one."""
    return isinstance(part, str) and _UNSTORABLE.search(part) is not None


def page_of(
    items: Iterable[T], size: int, place: Callable[[T], PageStart], weight: Callable[[T], int] | None = None
) -> tuple[list[T], str]:
    """The first items, as many as were asked for and as a page holds, and the token of the page after them.

    `items` are taken one by one and may go on for longer than the page; `weight` is in bytes.
    """
    page: list[T] = []
    total = 0
    for item in items:
        total += weight(item) if weight else 0
        if page and (len(page) == size or total > PAGE_BYTES_MAX):
            return page, token_of(place(page[-1]))
        page.append(item)
    return page, ""

"""URLs of pages: which paths are URLs, and their canonical form, which is the path of the page's entry.

Source: rows RU071, RU179.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from turnwright_core.limits import PATH_CHARS_MAX
from turnwright_core.text import scheme_of

SCHEMES: Final = frozenset({"http", "https"})
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
# Characters that are literal in a URL; all others are encoded.
_SAFE: Final = "%/:?#[]@!$&'()*+,;=~-._"


class PageAddressError(ValueError):
    """The text is not the URL of a page; the message says why."""


def is_page(path: str) -> bool:
    """Whether a path is the URL of a page. With a star it is a pattern over stored pages."""
    return (scheme_of(path) or "").lower() in SCHEMES and "*" not in path


def page_address(text: str) -> str:
    """The canonical URL of a page: no fragment, no default port, lower-case host and scheme.

    Raises PageAddressError for another scheme, no host, a user or password, or more than PATH_CHARS_MAX characters.
    """
    parts = _split(text.strip())
    host, port = parts.hostname, _port(parts)
    if parts.username is not None or parts.password is not None:
        raise PageAddressError("An address with a user or a password in it is not opened; leave both out.")
    if not host:
        raise PageAddressError("An address needs a host, as in https://example.org/page.")
    shown = f"[{host}]" if ":" in host else host
    place = shown if port in (None, _DEFAULT_PORTS[parts.scheme]) else f"{shown}:{port}"
    address = urlunsplit((parts.scheme, place, quote(parts.path or "/", _SAFE), quote(parts.query, _SAFE), ""))
    if len(address) > PATH_CHARS_MAX:
        raise PageAddressError(f"An address has at most {PATH_CHARS_MAX} characters.")
    return address


_ENDS: Final = r"""/?(?:\#[^\s<>"'`)\]]*)?(?=[.,;:!?]*(?:[\s<>"'`)\]}|*]|$))"""
"""Characters that can follow a URL in a text, because they do not belong to a longer one."""


def is_named(address: str, text: str) -> bool:
    """Whether a text contains this URL, as a link or by itself, with or without scheme and fragment."""
    bare = address.partition("://")[2].rstrip("/")
    # Most texts do not contain it, and a plain text search is far faster.
    found = [re.escape(spelling) for spelling in {bare, unquote(bare)} if spelling in text]
    named = rf"(?:(?<=://)|(?<![\w.@%/:&=?-]))(?:{'|'.join(found)}){_ENDS}"
    return bool(found) and re.search(named, text) is not None


def _split(text: str) -> SplitResult:
    try:
        text.encode()
        parts = urlsplit(text)
    except UnicodeEncodeError:
        raise PageAddressError("It contains half a character, which an address cannot.") from None
    except ValueError as error:
        raise PageAddressError(f"It cannot be read: {error}.") from None
    if parts.scheme not in SCHEMES:
        raise PageAddressError("Pages have an address that begins with https:// or http://.")
    return parts


def _port(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError:
        raise PageAddressError("The port of an address is a number from 1 to 65535.") from None

"""Base URLs: validation, a form without secrets, and paths below them."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

SECRET_NAMES: Final = re.compile(r"key|token|secret|password|sig|code|auth", re.IGNORECASE)
"""Names of parameters and headers that contain secrets."""


def is_base_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def public_url(url: str) -> str:
    """A URL without user, password, query and fragment; empty if it is not a URL."""
    if not is_base_url(url):
        return ""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def secrets_of(url: str) -> tuple[str, ...]:
    """The secrets in a URL: its password, and keys in its query."""
    parts = urlsplit(url)
    values = (value for name, value in parse_qsl(parts.query) if SECRET_NAMES.search(name))
    return (*filter(None, (parts.password, unquote(parts.password or ""))), *values)


def server_root(base_url: str, usual_path: str) -> str:
    """A base URL without its usual path."""
    parts = urlsplit(base_url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/").removesuffix(usual_path)))


def join_url(base_url: str, path: str) -> str:
    """The URL of a path below the base; the base's query, such as Azure's api-version, is kept."""
    parts = urlsplit(base_url)
    path, _, query = path.partition("?")
    queries = "&".join(filter(None, (parts.query, query)))
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + path, queries, ""))

"""The page: TypeScript in `src/`, built into `static/` (`make ui`), and how a browser is to treat it.

The page speaks gRPC-Web at its own origin, so whatever serves an executor to browsers can serve it too. It has no other
parts and loads nothing from anywhere else. Source: ADR 74.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
from base64 import b64encode
from collections.abc import Mapping
from importlib.resources import files as resources
from typing import Final

from turnwright_kit.settings import StaticFile

POLICY: Final = (
    "default-src 'none'; script-src {script}; style-src {style}; connect-src {connect}; img-src data:; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""The content security policy. No markup is made of texts either: the browser refuses all ways to do so."""

HEADERS: Final = (
    (
        b"content-security-policy",
        (POLICY.format(script="'self'", style="'self'", connect="'self'") + "; frame-ancestors 'none'").encode(),
    ),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
)
"""Headers of each file, beside those that every answer has."""

_KINDS: Final = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
}


@functools.cache
def files() -> Mapping[str, StaticFile]:
    """The files by the path at which they are served; the page itself is at `/`."""
    return {"/" if name == "index.html" else f"/{name}": _file(name) for name in _KINDS}


def _file(name: str) -> StaticFile:
    body = text_of(name).encode()
    return StaticFile(body, gzip.compress(body, mtime=0), _KINDS[name], HEADERS)


def text_of(name: str) -> str:
    return (resources(__name__) / "static" / name).read_text(encoding="utf-8")


def source_hash(text: str) -> str:
    """A source of the content security policy: this script or style, and no other."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

"""Addresses of services, also of one that listens on a wildcard or a port that the system chose; hosts in headers."""

from __future__ import annotations

import contextlib
import socket
from typing import Final
from urllib.parse import urlsplit

_WILDCARDS: Final = ("0.0.0.0", "[::]", "::", "*", "")  # noqa: S104 - compared with
_DOCUMENTATION_ADDRESSES: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses that no host has, used to find the outgoing interface. Nothing is sent there."""


def reachable_address(listening: str) -> str:
    """The address for other hosts; anything but a wildcard is returned unchanged."""
    host, _, port = listening.rpartition(":")
    return f"{_own_host()}:{port}" if host in _WILDCARDS else listening


def host_of(place: str) -> str:
    """The host of HOST or HOST:PORT, as a header has it, in lower case; empty if there is none."""
    with contextlib.suppress(ValueError):
        return urlsplit(f"//{place}").hostname or ""
    return ""


def _own_host() -> str:
    """The address of the outgoing interface, else the one that the host's name resolves to."""
    for family, target in _DOCUMENTATION_ADDRESSES:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as way:
            way.connect((target, 9))
            return _host(way.getsockname()[0])
    with contextlib.suppress(OSError):
        return _host(socket.getaddrinfo(socket.gethostname(), None)[0][4][0])
    return "127.0.0.1"


def _host(address: object) -> str:
    return f"[{address}]" if ":" in str(address) else str(address)

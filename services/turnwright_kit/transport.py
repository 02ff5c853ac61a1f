"""Transport security of listeners: TLS, or plaintext where nobody else can listen.

Certificates are reloaded without a restart: a listener takes the current ones at each handshake.
"""

from __future__ import annotations

from typing import Any

import grpc

from turnwright_core.rpc.certificates import Certificates, Tls
from turnwright_core.rpc.transport import check_plaintext, is_socket


def listen(server: grpc.aio.Server, address: str, tls: Tls) -> int:
    """Add an address to a server and return its port.

    Raises RuntimeError if it cannot be bound, and TurnwrightError if others could read it.
    """
    if not tls.has_certificate or is_socket(address):
        check_plaintext(address, tls, "listen on", "Set TURNWRIGHT_TLS_CERT and TURNWRIGHT_TLS_KEY")
        plain: int = server.add_insecure_port(address)
        return plain
    secure: int = server.add_secure_port(address, _server_credentials(tls))
    return secure


def _server_credentials(tls: Tls) -> grpc.ServerCredentials:
    used = tls.current()

    def newer() -> Any:
        """The configuration for the next handshake; None: unchanged."""
        nonlocal used
        if (found := tls.current()) is used:
            return None
        used = found
        return _configuration(found, tls)

    return grpc.dynamic_ssl_server_credentials(_configuration(used, tls), newer, tls.mutual)


def _configuration(found: Certificates, tls: Tls) -> Any:
    authorities = found.authorities if tls.mutual else None
    return grpc.ssl_server_certificate_configuration([(found.key, found.chain)], authorities)

"""Trusted certificate authorities for TLS connections to external servers."""

from __future__ import annotations

import ssl


def tls_context() -> ssl.SSLContext:
    """The system's authorities (SSL_CERT_FILE is honoured); certifi's if the system has none."""
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"]:
        import certifi  # noqa: PLC0415 - most systems have authorities of their own

        context.load_verify_locations(certifi.where())
    return context

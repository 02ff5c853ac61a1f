"""The certificate of a service: checked for what its callers would refuse (is it valid now, does it name hosts)."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

from turnwright_core.rpc.certificates import CA, CERT, KEY, Tls, not_pem
from turnwright_kit.logs import get_logger
from turnwright_kit.telemetry import count
from turnwright_kit.telemetry_names import CERTIFICATES_REFUSED

if TYPE_CHECKING:
    from cryptography import x509

_log = get_logger("tls")


class ServiceTls(Tls):
    """What a service listens and calls with."""

    def _refused(self, error: ValueError) -> None:
        count(CERTIFICATES_REFUSED)
        _log.error("certificates_refused", problem=str(error), consequence="the certificates read before stay in use")

    def _reloaded(self) -> None:
        _log.info("certificates_reloaded")

    def _check_authorities(self, path: Path, content: bytes) -> None:
        _certificates(CA, path, content)

    def _check_own(self, chain_file: Path, chain: bytes, key_file: Path, key: bytes) -> float:
        own = _certificates(CERT, chain_file, chain)[0]
        _check_dates(chain_file, own)
        _check_names(chain_file, own)
        _check_key(key_file, key, own)
        return own.not_valid_after_utc.timestamp()


def _certificates(variable: str, path: Path, content: bytes) -> list[x509.Certificate]:
    from cryptography import x509  # noqa: PLC0415 - only processes with TLS need it

    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        raise not_pem(variable, path) from None


def _check_dates(path: Path, own: x509.Certificate) -> None:
    now = dt.datetime.now(dt.UTC)
    if now > own.not_valid_after_utc:
        raise ValueError(f"{CERT}: {path} expired on {own.not_valid_after_utc:%Y-%m-%d %H:%M} UTC")
    if now < own.not_valid_before_utc:
        raise ValueError(f"{CERT}: {path} is not valid before {own.not_valid_before_utc:%Y-%m-%d %H:%M} UTC")


def _check_names(path: Path, own: x509.Certificate) -> None:
    from cryptography import x509  # noqa: PLC0415 - only processes with TLS need it

    try:
        own.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        raise ValueError(
            f"{CERT}: {path} has no subject alternative names, which callers require: issue it with the "
            "host names and addresses at which this process is called"
        ) from None


def _check_key(path: Path, content: bytes, own: x509.Certificate) -> None:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - only processes with TLS need it

    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError):
        raise ValueError(f"{KEY}: {path} holds no private key in PEM form without a password") from None
    if key.public_key() != own.public_key():
        raise ValueError(f"{KEY}: {path} is not the key of the certificate in {CERT}")

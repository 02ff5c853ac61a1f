"""Certificate files: read, checked, and read again when they change.

A certificate that is rotated replaces its files at any moment, and not all at once. What is read is checked as a whole
(does the key belong to the certificate, is it valid now, does it name hosts); until the new files pass, the ones that
were read before stay in use.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from turnwright_kit.logs import get_logger
from turnwright_kit.private_files import read_private
from turnwright_kit.telemetry import count
from turnwright_kit.telemetry_names import CERTIFICATES_REFUSED

if TYPE_CHECKING:
    from cryptography import x509

LOOK_S: Final = 1.0
"""Files are looked at for changes at most this often, in seconds."""

_log = get_logger("tls")

_Seen = tuple[tuple[int, int, int], ...]


class Certificates(Struct, frozen=True):
    """Contents of the files, in PEM. Empty: there is no such file."""

    chain: bytes = b""
    key: bytes = b""
    authorities: bytes = b""
    expiry_s: float = 0.0
    """When the certificate expires, in seconds since 1970."""


class Tls:
    """The certificate of a process, and the authorities that it trusts. Without files: plaintext.

    It is asked by the event loop and by threads of gRPC.
    """

    def __init__(
        self,
        chain: Path | None = None,
        key: Path | None = None,
        authorities: Path | None = None,
        *,
        mutual: bool = False,
        name: str = "",
        insecure: bool = False,
    ) -> None:
        """Read the files. Raises ValueError with a sentence that names the variable of a file that cannot be used.

        `mutual`: callers must present a certificate of the authorities. `name`: the name that certificates of called
        services must have; empty: the host that is called. `insecure`: plaintext is allowed beyond this host.
        """
        if (chain is None) != (key is None):
            raise ValueError("a certificate and its key go together: set TURNWRIGHT_TLS_CERT and TURNWRIGHT_TLS_KEY")
        if mutual and not (key and authorities):
            raise ValueError("TURNWRIGHT_TLS_MUTUAL needs TURNWRIGHT_TLS_CERT, TURNWRIGHT_TLS_KEY, TURNWRIGHT_TLS_CA")
        self.mutual, self.name, self.insecure = mutual, name, insecure
        self.has_certificate, self.is_on = chain is not None, bool(chain or authorities)
        self._chain, self._key, self._authorities = chain, key, authorities
        self._lock = threading.Lock()
        self._seen = self._look()
        self._look_at = time.monotonic() + LOOK_S
        self._current = self._read()

    def current(self) -> Certificates:
        """The newest contents that were usable."""
        with self._lock:
            if (now := time.monotonic()) >= self._look_at:
                self._look_at = now + LOOK_S
                if (seen := self._look()) != self._seen:
                    self._seen = seen
                    self._reload()
            return self._current

    def _reload(self) -> None:
        try:
            self._current = self._read()
        except ValueError as error:
            count(CERTIFICATES_REFUSED)
            _log.error(
                "certificates_refused", problem=str(error), consequence="the certificates read before stay in use"
            )
        else:
            _log.info("certificates_reloaded")

    def _look(self) -> _Seen:
        """What tells whether a file has been replaced."""
        return tuple(_identity(path) for path in (self._chain, self._key, self._authorities) if path)

    def _read(self) -> Certificates:
        """All files. Raises ValueError."""
        authorities = _content("TURNWRIGHT_TLS_CA", self._authorities)
        if self._authorities:
            _certificates("TURNWRIGHT_TLS_CA", self._authorities, authorities)
        if self._chain is None or self._key is None:
            return Certificates(authorities=authorities)
        chain = _content("TURNWRIGHT_TLS_CERT", self._chain)
        key = _content("TURNWRIGHT_TLS_KEY", self._key, read_private)
        own = _certificates("TURNWRIGHT_TLS_CERT", self._chain, chain)[0]
        _check_dates(self._chain, own)
        _check_names(self._chain, own)
        _check_key(self._key, key, own)
        return Certificates(chain, key, authorities, own.not_valid_after_utc.timestamp())


def _identity(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def _content(variable: str, path: Path | None, read: Callable[[Path], bytes] = Path.read_bytes) -> bytes:
    if path is None:
        return b""
    try:
        return read(path)
    except OSError as error:
        raise ValueError(f"{variable}: {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{variable}: {error}") from None


def _certificates(variable: str, path: Path, content: bytes) -> list[x509.Certificate]:
    from cryptography import x509  # noqa: PLC0415 - only processes with TLS need it

    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        raise ValueError(f"{variable}: {path} holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)") from None


def _check_dates(path: Path, own: x509.Certificate) -> None:
    now = dt.datetime.now(dt.UTC)
    if now > own.not_valid_after_utc:
        raise ValueError(f"TURNWRIGHT_TLS_CERT: {path} expired on {own.not_valid_after_utc:%Y-%m-%d %H:%M} UTC")
    if now < own.not_valid_before_utc:
        raise ValueError(
            f"TURNWRIGHT_TLS_CERT: {path} is not valid before {own.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        )


def _check_names(path: Path, own: x509.Certificate) -> None:
    from cryptography import x509  # noqa: PLC0415 - only processes with TLS need it

    try:
        own.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        raise ValueError(
            f"TURNWRIGHT_TLS_CERT: {path} has no subject alternative names, which callers require: issue it with the "
            "host names and addresses at which this process is called"
        ) from None


def _check_key(path: Path, content: bytes, own: x509.Certificate) -> None:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - only processes with TLS need it

    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError):
        raise ValueError(f"TURNWRIGHT_TLS_KEY: {path} holds no private key in PEM form without a password") from None
    if key.public_key() != own.public_key():
        raise ValueError(f"TURNWRIGHT_TLS_KEY: {path} is not the key of the certificate in TURNWRIGHT_TLS_CERT")

"""Certificate files: read, checked, and read again when they change.

A certificate that is rotated replaces its files at any moment, and not all at once. What is read is checked as a whole
(does the key belong to the certificate); until the new files pass, the ones that were read before stay in use.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from turnwright_core.private_files import read_private

LOOK_S: Final = 1.0
"""Files are looked at for changes at most this often, in seconds."""

CA: Final = "TURNWRIGHT_TLS_CA"
CERT: Final = "TURNWRIGHT_TLS_CERT"
KEY: Final = "TURNWRIGHT_TLS_KEY"

_logger: Final = logging.getLogger("turnwright.tls")

_Seen = tuple[tuple[int, int, int], ...]


class Certificates(Struct, frozen=True):
    """Contents of the files, in PEM. Empty: there is no such file."""

    chain: bytes = b""
    key: bytes = b""
    authorities: bytes = b""
    expiry_s: float = 0.0
    """When the certificate expires, in seconds since 1970; 0: nobody has asked."""


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
        """Read the files. Raises ValueError with a sentence that names the setting of a file that cannot be used.

        `mutual`: callers must present a certificate of the authorities. `name`: the name that certificates of called
        services must have; empty: the host that is called. `insecure`: plaintext is allowed beyond this host.
        """
        if (chain is None) != (key is None):
            raise ValueError(f"a certificate and its key go together: set {CERT} and {KEY}")
        if mutual and not (key and authorities):
            raise ValueError(f"TURNWRIGHT_TLS_MUTUAL needs {CERT}, {KEY}, {CA}")
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
            self._refused(error)
        else:
            self._reloaded()

    def _refused(self, error: ValueError) -> None:
        _logger.error("New certificates are refused, and those read before stay in use: %s", error)

    def _reloaded(self) -> None:
        _logger.info("New certificates are in use.")

    def _look(self) -> _Seen:
        """What tells whether a file has been replaced."""
        return tuple(_identity(path) for path in (self._chain, self._key, self._authorities) if path)

    def _read(self) -> Certificates:
        """All files. Raises ValueError."""
        authorities = _content(CA, self._authorities)
        if self._authorities:
            self._check_authorities(self._authorities, authorities)
        if self._chain is None or self._key is None:
            return Certificates(authorities=authorities)
        chain = _content(CERT, self._chain)
        key = _content(KEY, self._key, read_private)
        return Certificates(chain, key, authorities, self._check_own(self._chain, chain, self._key, key))

    def _check_authorities(self, path: Path, content: bytes) -> None:
        """Raises ValueError if there is none."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=content.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise not_pem(CA, path) from None

    def _check_own(self, chain_file: Path, chain: bytes, key_file: Path, key: bytes) -> float:  # noqa: ARG002
        """When it expires, or 0. Raises ValueError if the key is not that of the certificate."""
        seen = self._look()
        try:
            # By the files: `ssl` takes no contents. Asked for a password, it would ask whoever sits at the terminal.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(chain_file, key_file, password=lambda: "")
        except (ssl.SSLError, OSError):
            raise ValueError(
                f"{CERT} and {KEY}: {chain_file} and {key_file} do not hold a certificate and its key, in PEM "
                "form and without a password"
            ) from None
        if self._look() != seen:
            raise ValueError(f"{CERT}: {chain_file} was replaced while it was read")
        return 0.0


def not_pem(variable: str, path: Path) -> ValueError:
    return ValueError(f"{variable}: {path} holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)")


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

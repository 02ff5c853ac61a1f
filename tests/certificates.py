"""A certificate authority for tests: real certificates, good and bad ones."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass
class Authority:
    """Issues certificates; `file` holds its own."""

    file: Path
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self.name = _name(f"authority {self.file.stem}")
        limits = x509.BasicConstraints(ca=True, path_length=None)
        builder = _builder(self.name, self.name, self.key, 1).add_extension(limits, critical=True)
        self.file.write_bytes(self._signed(builder.add_extension(_SIGNS_CERTIFICATES, critical=True)))

    def issue(
        self, folder: Path, *uris: str, days: int = 1, names: bool = True, common: str = "turnwright", more: str = ""
    ) -> Path:
        """Write cert.pem and key.pem for 127.0.0.1 into the folder, each at once; returns the folder.

        The certificate has these URIs, and `more` as a further DNS name.
        """
        folder.mkdir(exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(common), self.name, key, days)
        if names:
            hosts = [
                x509.DNSName("localhost"),
                x509.DNSName("executor"),
                x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                *(x509.UniformResourceIdentifier(uri) for uri in uris),
                *([x509.DNSName(more)] if more else []),
            ]
            builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        _replace(folder / "key.pem", _pem(key), 0o600)
        _replace(folder / "cert.pem", self._signed(builder), 0o644)
        return folder

    def _signed(self, builder: x509.CertificateBuilder) -> bytes:
        # Python refuses certificates without the identifier of their authority's key from 3.13 on.
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        made = builder.add_extension(issuer, critical=False).sign(self.key, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.PEM)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 9 * DAY)
        .not_valid_after(now + days * DAY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _replace(file: Path, content: bytes, mode: int) -> None:
    scratch = file.with_suffix(".new")
    scratch.write_bytes(content)
    scratch.chmod(mode)
    scratch.replace(file)

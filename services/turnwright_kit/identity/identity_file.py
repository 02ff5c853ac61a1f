"""`identity.toml`: the issuers whose tokens count, and the certificates that name callers."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct, field

from turnwright_core.converters import converter
from turnwright_kit.identity.caller import Kind
from turnwright_kit.identity.own_tokens import check_name, check_names

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class IssuerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """An OpenID provider, or anything else that signs JWTs and publishes its keys."""

    name: str
    """Its principals and groups are `NAME/...`."""
    url: str
    """The claim `iss`, to the letter; below it is `.well-known/openid-configuration`, unless `jwks` is set."""
    audience: str
    principal: str = "sub"
    """The claim with the principal."""
    groups: str = ""
    """The claim with the list of groups; empty: none."""
    kind: Kind = Kind.PERSON
    jwks: str = ""
    """The URL of its keys."""


class NamedPeer(Struct, frozen=True, forbid_unknown_fields=True):
    """Who connects with a certificate."""

    uri: str
    """The URI among its subject alternative names, to the letter: `spiffe://TRUST-DOMAIN/PATH`."""
    principal: str
    kind: Kind = Kind.PERSON
    groups: list[str] = field(default_factory=list)


class NamedProxy(Struct, frozen=True, forbid_unknown_fields=True):
    """A proxy that is trusted with saying whose certificate it has verified, by one of these."""

    uri: str = ""
    """That of its own certificate."""
    address: str = ""
    """Where the sidecar of a mesh connects from, within the pod of this service: `127.0.0.6` for that of Istio."""


class IdentitySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file; without one only our own tokens count."""

    issuer: list[IssuerSettings] = field(default_factory=list)
    peer: list[NamedPeer] = field(default_factory=list)
    proxy: list[NamedProxy] = field(default_factory=list)


_identities: Final = converter(IdentitySettings)


def read_identity_file(file: Path, *, is_needed: bool) -> IdentitySettings:
    """What the file says. Raises ValueError with a sentence, also if it is needed and not there."""
    import tomllib  # noqa: PLC0415 - few processes have such a file

    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        found = _identities(table)
    except FileNotFoundError:
        if is_needed:
            raise ValueError(f"{file} is not there: TURNWRIGHT_IDENTITY names it") from None
        return IdentitySettings()
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from None
    try:
        _check(found)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    return found


def _check(found: IdentitySettings) -> None:
    uris = [*(one.uri for one in found.peer), *(one.uri for one in found.proxy if not one.address)]
    for what, names in (
        ("issuer", [one.name for one in found.issuer]),
        ("URL of an issuer", [one.url for one in found.issuer]),
        ("URI of a peer or proxy", uris),
    ):
        if len(set(names)) < len(names):
            raise ValueError(f"each {what} stands there once")
    for issuer in found.issuer:
        _check_issuer(issuer)
    for uri in uris:
        parts = urlsplit(uri)
        if parts.scheme != "spiffe" or not parts.netloc or not parts.path.strip("/"):
            raise ValueError(f"the URI of a peer or proxy is `spiffe://TRUST-DOMAIN/PATH`, whole; not {uri!r}")
    for proxy in filter(lambda one: one.address, found.proxy):
        try:
            is_fit = ip_address(proxy.address).is_loopback and not proxy.uri
        except ValueError:
            is_fit = False
        if not is_fit:
            raise ValueError(f"the address of a sidecar is one of loopback, without a `uri`; not {proxy.address!r}")
    for peer in found.peer:
        check_name(peer.principal, peer.kind)
        check_names(peer.groups)


def _check_issuer(issuer: IssuerSettings) -> None:
    if not issuer.name or "/" in issuer.name:
        raise ValueError(f"the name of an issuer is not empty and has no slash; not {issuer.name!r}")
    if issuer.kind is Kind.SERVICE:
        raise ValueError(f"the tokens of the issuer {issuer.name} are of no service: services have tokens of their own")
    for url in filter(None, (issuer.url, issuer.jwks)):
        parts = urlsplit(url)
        if not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)):
            raise ValueError(f"the issuer {issuer.name} is reached with https; not {url!r}")
